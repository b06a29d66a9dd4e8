"""The reference engine: a module of transformers, loaded through the format under test and run step by step."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pytest_tensorizer.engines.protocol import Generation, LoadedModel, Prompt, Sampling
from pytest_tensorizer.resolve import distribution_version

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from pytest_tensorizer.checkpoint import Checkpoint

# torch maps its own tensors at this alignment. Kernels choose another order of summation for other addresses, and
# logits then differ in the last bit although every weight is identical.
_ALIGNMENT = 64


class TransformersEngine:
    """Builds the module from its configuration with weights of another seed, and loads into it with `load_module`.

    A tensor that the format leaves out keeps those other weights, and shows.
    """

    name = "transformers"
    capabilities = frozenset({"text", "prompt_embeds", "sampling", "bitwise"})
    imports = ("transformers.models.auto.modeling_auto", "transformers.models.auto.tokenization_auto")

    @property
    def version(self) -> str:
        return distribution_version("transformers")

    def load(self, checkpoint: Checkpoint, *, device: str, dtype: torch.dtype) -> LoadedModel:
        from pytest_tensorizer.models import from_directory

        model = from_directory(checkpoint.directory)
        module = model.skeleton(dtype)
        checkpoint.weights.load_module(module)
        # As `from_pretrained` does: a format may write one of two tied names, and the architecture says which.
        module.tie_weights()  # type: ignore[operator]
        return LoadedModule(module, device=device, tokenizer=model.tokenizer())


class LoadedModule:
    """A module of transformers as a :class:`~pytest_tensorizer.engines.LoadedModel`: a loaded one, or the original."""

    def __init__(self, module: nn.Module, *, device: str = "cpu", tokenizer: Any = None) -> None:
        self._module: Any = module.to(device).eval()
        self._device = device
        self._tokenizer = tokenizer
        _align(self._module)

    def weights(self) -> dict[str, Tensor]:
        named = [
            *self._module.named_parameters(remove_duplicate=False),
            *self._module.named_buffers(remove_duplicate=False),
        ]
        return {name: tensor.detach() for name, tensor in named}

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation]:
        import torch

        # One prompt at a time: padding and batch size change the order of summation.
        with torch.inference_mode(), _deterministic():
            return [self._generate(prompt, sampling) for prompt in prompts]

    def close(self) -> None:
        self._module = None

    def _generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        import torch

        embeds = self._embeds(prompt)
        generator = torch.Generator().manual_seed(sampling.seed)
        if _is_encoder(self._module):
            rows = self._module(inputs_embeds=embeds).logits[0]
            tokens, logprobs = _choose(rows, sampling, generator)
        else:
            tokens, logprobs = self._decode(embeds, sampling, generator)
        text = self._tokenizer.decode(tokens) if self._tokenizer is not None else ""
        return Generation(tuple(tokens), text, logprobs if sampling.logprobs else None)

    def _decode(self, embeds: Tensor, sampling: Sampling, generator: torch.Generator) -> tuple[list[int], Tensor]:
        import torch
        from transformers import DynamicCache

        tokens: list[int] = []
        logprobs: list[Tensor] = []
        cache = {_cache_argument(self._module): DynamicCache(config=self._module.config)}
        for _ in range(sampling.max_new_tokens):
            logits = self._module(inputs_embeds=embeds, use_cache=True, **cache).logits
            chosen, logprob = _choose(logits[0, -1:], sampling, generator)
            tokens += chosen
            logprobs.append(logprob)
            embeds = self._rows(chosen)
        return tokens, torch.cat(logprobs) if logprobs else torch.empty(0)

    def _embeds(self, prompt: Prompt) -> Tensor:
        """Whatever the prompt is, the model sees (1, tokens, hidden): one path for all three kinds."""
        import torch

        if isinstance(prompt, torch.Tensor):
            if prompt.dim() != 2:
                raise ValueError(f"a prompt embedding is (tokens, hidden), not of shape {tuple(prompt.shape)}")
            return prompt.to(self._device)[None]
        if isinstance(prompt, str):
            if self._tokenizer is None:
                raise ValueError("a prompt given as text needs a tokenizer: pass token ids")
            return self._rows(self._tokenizer(prompt)["input_ids"])
        return self._rows(prompt)

    def _rows(self, token_ids: Sequence[int]) -> Tensor:
        import torch

        rows: Tensor = self._module.get_input_embeddings()(torch.tensor([list(token_ids)], device=self._device))
        return rows


def _choose(logits: Tensor, sampling: Sampling, generator: torch.Generator) -> tuple[list[int], Tensor]:
    """The token of each row of (rows, vocabulary) logits, and its log probability as (rows,) float32, on the CPU."""
    import torch

    # Drawn on the CPU from float32: a CUDA generator gives other numbers on every kind of card.
    logprobs = torch.log_softmax(logits.float().cpu(), dim=-1)
    if sampling.temperature == 0:
        chosen = logprobs.argmax(dim=-1, keepdim=True)
    else:
        probabilities = torch.softmax(logprobs / sampling.temperature, dim=-1)
        chosen = torch.multinomial(probabilities, 1, generator=generator)
    return chosen[:, 0].tolist(), logprobs.gather(-1, chosen)[:, 0]


def _cache_argument(module: Any) -> str:
    """How this release of transformers calls the argument: `past_key_values` is deprecated since 5.24."""
    return "cache" if "cache" in inspect.signature(module.forward).parameters else "past_key_values"


def _is_encoder(module: Any) -> bool:
    return not module.can_generate()


def _align(module: nn.Module) -> None:
    """Move tensors that a loader left at odd addresses, keeping every Parameter object and every tie."""
    import torch

    with torch.no_grad():
        for tensor in [*module.parameters(), *module.buffers()]:
            if tensor.data_ptr() % _ALIGNMENT:
                tensor.data = tensor.data.clone()


@contextmanager
def _deterministic() -> Iterator[None]:
    """torch's deterministic algorithms, with the caller's setting put back."""
    import torch

    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    # cuBLAS reads it when it is first used in the process: https://docs.nvidia.com/cuda/cublas (reproducibility)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn_only)
