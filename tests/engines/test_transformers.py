"""The reference engine: deterministic, sensitive to every weight, the same for all kinds of prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_tensorizer import engines
from pytest_tensorizer.checkpoint import Checkpoint, WeightsFile
from pytest_tensorizer.engines import Engine, Sampling
from pytest_tensorizer.engines.transformers import LoadedModule
from pytest_tensorizer.formats.torch import TorchFormat
from pytest_tensorizer.identity import assert_identical, identical
from pytest_tensorizer.models import CONFIGS, ModelStore
from pytest_tensorizer.resolve import TargetError
from pytest_tensorizer.storage import LocalStorage

PROMPT = [1, 40, 91, 300, 17]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ModelStore:
    return ModelStore(tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize("name", list(CONFIGS))
def test_a_loaded_checkpoint_is_the_original(name: str, store: ModelStore, tmp_path: Path) -> None:
    model = store.get(name)
    engine = engines.resolve("transformers")
    assert isinstance(engine, Engine)
    file = WeightsFile.write(model.module(), TorchFormat(), LocalStorage(tmp_path), "m.pt")
    loaded = engine.load(Checkpoint(model.directory, file), device="cpu", dtype=torch.float32)
    original = LoadedModule(model.module(), tokenizer=model.tokenizer())
    assert_identical(loaded.weights(), original.weights())
    prompts: list[Any] = [PROMPT, "Every loader"]
    found, expected = loaded.generate(prompts, Sampling()), original.generate(prompts, Sampling())
    assert_identical(found, expected)
    assert found[0].logprobs is not None
    assert found[0].logprobs.dtype is torch.float32
    assert len(found[0].token_ids) == len(found[0].logprobs) == (len(PROMPT) if name == "bert" else 16)
    loaded.close()
    loaded.close()


@pytest.mark.parametrize("name", list(CONFIGS))
def test_one_wrong_weight_changes_what_is_generated(name: str, store: ModelStore) -> None:
    """Each matrix of the model, shuffled alone, changes the tokens; else a wrong weight could hide."""
    model = store.get(name)
    expected = LoadedModule(model.module()).generate([PROMPT], Sampling())[0].token_ids
    for parameter_name, parameter in model.module().named_parameters():
        if parameter.dim() < 2 or "token_type" in parameter_name:
            continue
        module = model.module()
        target = module.get_parameter(parameter_name)
        with torch.no_grad():
            target.copy_(target.flip(0))
        found = LoadedModule(module).generate([PROMPT], Sampling())[0].token_ids
        assert found != expected, f"{parameter_name} turned upside down changed nothing"


def test_a_seed_decides_samples(store: ModelStore) -> None:
    loaded = LoadedModule(store.get("llama").module())
    runs = [loaded.generate([PROMPT], Sampling(temperature=1.0, seed=seed)) for seed in (1, 1, 2)]
    assert identical(runs[0], runs[1])
    assert runs[0][0].token_ids != runs[2][0].token_ids
    assert loaded.generate([PROMPT], Sampling(max_new_tokens=0))[0].token_ids == ()
    assert loaded.generate([PROMPT], Sampling(logprobs=False))[0].logprobs is None


def test_settings_of_torch_are_put_back(store: ModelStore) -> None:
    loaded = LoadedModule(store.get("gpt2").module())
    before = torch.random.get_rng_state()
    torch.use_deterministic_algorithms(False)
    loaded.generate([PROMPT], Sampling(max_new_tokens=1, temperature=1.0))
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.equal(torch.random.get_rng_state(), before)


def test_prompts_that_make_no_sense_are_refused(store: ModelStore) -> None:
    loaded = LoadedModule(store.get("gpt2").module())
    with pytest.raises(ValueError, match="tokenizer"):
        loaded.generate(["text"], Sampling())
    with pytest.raises(ValueError, match=r"\(1, 2, 64\)"):
        loaded.generate([torch.zeros(1, 2, 64)], Sampling())


def test_odd_addresses_are_mended_without_breaking_references(store: ModelStore) -> None:
    module: Any = store.get("gpt2").module()
    weight = module.transformer.wte.weight
    raw = torch.zeros(weight.numel() * 4 + 64, dtype=torch.uint8)
    offset = (4 - raw.data_ptr()) % 64
    odd = raw[offset : offset + weight.numel() * 4].view(torch.float32).reshape(weight.shape)
    odd.copy_(weight.detach())
    weight.data = odd
    assert weight.data_ptr() % 64 == 4
    LoadedModule(module)
    assert weight.data_ptr() % 64 == 0
    assert module.transformer.wte.weight is weight
    assert module.lm_head.weight is weight


def test_resolve_says_what_is_wrong() -> None:
    with pytest.raises(TargetError, match="use one of transformers"):
        engines.resolve("vllm-of-tomorrow")
    with pytest.raises(TargetError, match="lacks name, capabilities, load"):
        engines.resolve("pytest_tensorizer.models:SEED")
