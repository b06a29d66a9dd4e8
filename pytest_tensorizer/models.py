"""Tiny deterministic models of many architectures, made locally with a tokenizer of their own; and real ones.

Heads are 32 wide, as some attention kernels demand, and weights are drawn wide, so that one wrong weight changes
what is generated.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn

SEED = 20
VOCABULARY = 384

_SPECIALS = ["<pad>", "<s>", "</s>", "<mask>"]
_TOKENS: dict[str, Any] = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_TEXT = (
    "A checkpoint is a promise: these bytes are the model that was trained. Every loader repeats the promise, and\n"
    "none of them is asked to prove it. Numbers that are nearly right look like numbers that are right; a tensor\n"
    "that was never read looks like one that was. So read it back, compare it bit by bit, run the model, and say\n"
    "what differs, where, and by how much. 0123456789 +-*/= (){}[] <>, \"quotes\", 'single', äöü ß é ñ 漢字 🙂\n"
)


def _llama() -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        hidden_size=128, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=128, tie_word_embeddings=False, **_TOKENS,
    )  # fmt: skip


def _opt() -> Any:
    from transformers import OPTConfig

    return OPTConfig(
        hidden_size=64, ffn_dim=128, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=128,
        word_embed_proj_dim=64, dropout=0.0, **_TOKENS,
    )  # fmt: skip


def _gpt2() -> Any:
    from transformers import GPT2Config

    return GPT2Config(n_embd=64, n_layer=2, n_head=2, n_positions=128, **_TOKENS)


def _gptj() -> Any:
    from transformers import GPTJConfig

    return GPTJConfig(n_embd=64, n_layer=2, n_head=2, rotary_dim=16, n_positions=128, **_TOKENS)


def _bert() -> Any:
    from transformers import BertConfig

    return BertConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128,
        max_position_embeddings=128, **_TOKENS,
    )  # fmt: skip


CONFIGS: dict[str, tuple[Callable[[], Any], str]] = {
    "llama": (_llama, "LlamaForCausalLM"),  # rotary positions, grouped heads, an output layer of its own
    "opt": (_opt, "OPTForCausalLM"),  # learned positions, tied embeddings
    "gpt2": (_gpt2, "GPT2LMHeadModel"),  # transposed linear layers, tied embeddings
    "gptj": (_gptj, "GPTJForCausalLM"),  # rotary positions held in a buffer, biased output layer
    "bert": (_bert, "BertForMaskedLM"),  # an encoder: one prediction for each position
}
"""Name -> (configuration, architecture) of the tiny models."""

IMPORTS = tuple(f"transformers.models.{name}.modeling_{name}" for name in CONFIGS)
"""What the tiny models import when they are made."""


@dataclass(frozen=True)
class Model:
    """A model in a directory that `from_pretrained` reads: configuration, tokenizer and weights.

    For a tiny model (`seed` is set) :meth:`module` draws the weights anew and reads no file, so that nothing which
    is being tested stands between the test and the truth. For a directory of the user's it is `from_pretrained`.
    """

    name: str
    directory: Path
    seed: int | None = None

    def config(self) -> Any:
        from transformers import AutoConfig

        return AutoConfig.from_pretrained(self.directory)

    def tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.directory)

    def module(self, dtype: torch.dtype | None = None) -> nn.Module:
        """The true model in `dtype` (float32 by default) on the CPU, in eval mode."""
        import torch

        dtype = dtype or torch.float32
        if self.seed is not None:
            return self.skeleton(dtype, seed=self.seed)
        module: nn.Module = architecture(self.config()).from_pretrained(self.directory, dtype=dtype)
        return module.eval()

    def skeleton(self, dtype: torch.dtype | None = None, *, seed: int = SEED + 1) -> nn.Module:
        """A module of the same architecture, with the weights that `seed` draws: something to load into."""
        import torch

        return _drawn(self.config(), dtype or torch.float32, seed)


def architecture(config: Any) -> Any:
    """The class of transformers that `config.architectures` names. Raises ValueError where it names none."""
    import transformers

    name = (config.architectures or ["(none)"])[0]
    try:
        return getattr(transformers, name)
    except AttributeError:
        raise ValueError(
            f"config.json names the architecture {name!r}, which transformers {transformers.__version__} "
            "does not have: models of a repository's own code are not supported"
        ) from None


def _drawn(config: Any, dtype: torch.dtype, seed: int) -> nn.Module:
    """A module whose every parameter is drawn from `seed`: the same bits on every machine and in every process."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module: nn.Module = architecture(config)._from_config(config, dtype=dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(module.named_parameters()):
            values = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() < 2:
                # Norm weights around one, biases around zero; both wide enough to matter.
                values = values * 0.3 + (1.0 if name.endswith("weight") else 0.0)
            elif _is_embedding(name):
                # Narrower than what the layers add: with tied embeddings a token would else repeat itself for ever.
                values = values * 0.3
            else:
                values = values * (2.0 / parameter.shape[-1] ** 0.5)
            parameter.copy_(values)
    return module.eval()


def _is_embedding(name: str) -> bool:
    return any(part in name for part in ("embed", "wte", "wpe"))


class ModelStore:
    """The tiny models of a session, made once each below `root`, which processes may share."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def get(self, name: str) -> Model:
        """The tiny model called `name`. Raises ValueError with the list of names for an unknown one."""
        from filelock import FileLock

        if name not in CONFIGS:
            raise ValueError(f"there is no tiny model {name!r}: choose from {', '.join(CONFIGS)}")
        directory = self.root / name
        self.root.mkdir(parents=True, exist_ok=True)
        with FileLock(self.root / f"{name}.lock"):
            if not directory.exists():
                self._make(name, directory)
        return Model(name, directory, SEED)

    @staticmethod
    def _make(name: str, directory: Path) -> None:
        # Written beside and renamed, so that a killed process leaves no half of a model behind.
        unfinished = directory.with_name(f"{name}.{os.getpid()}.part")
        shutil.rmtree(unfinished, ignore_errors=True)
        make_config, class_name = CONFIGS[name]
        config = make_config()
        config.architectures = [class_name]
        config.save_pretrained(unfinished)
        _make_tokenizer().save_pretrained(unfinished)
        module: Any = Model(name, unfinished, SEED).module()
        with _quiet():
            module.save_pretrained(unfinished)
        unfinished.rename(directory)


def from_directory(directory: Path) -> Model:
    """A real checkpoint directory. Raises ValueError where there is none that transformers could read."""
    if not (directory / "config.json").is_file():
        raise ValueError(f"{str(directory)!r} is no checkpoint directory: it has no config.json")
    return Model(directory.resolve().name, directory.resolve())


def _make_tokenizer() -> Any:
    """A byte-level BPE tokenizer trained on a few lines: every text has a token sequence, and back."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=_SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_TEXT.splitlines(), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", mask_token="<mask>"
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' progress bars, which would stand in somebody's captured output."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
