"""The tiny models: the same bits everywhere, made once, readable by `from_pretrained`."""

from __future__ import annotations

import hashlib
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
import torch

from pytest_tensorizer.identity import assert_identical
from pytest_tensorizer.models import CONFIGS, ModelStore, architecture, from_directory


def _digest(root: str, name: str) -> str:
    """Of all weights, as another process makes or finds them."""
    digest = hashlib.sha256()
    for key, tensor in sorted(ModelStore(Path(root)).get(name).module().state_dict().items()):
        digest.update(key.encode() + tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("name", list(CONFIGS))
def test_directory_is_a_checkpoint_of_the_drawn_weights(name: str, tmp_path: Path) -> None:
    model = ModelStore(tmp_path).get(name)
    on_disk = from_directory(model.directory)
    assert on_disk.name == name
    assert_identical(dict(on_disk.module().state_dict()), dict(model.module().state_dict()), facets={"bits", "missing"})
    tokenizer = model.tokenizer()
    text = "none of them, 漢字 🙂"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert max(tokenizer(text)["input_ids"]) < model.config().vocab_size


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_are_the_same_each_time_and_a_skeleton_has_others(dtype: torch.dtype, tmp_path: Path) -> None:
    model = ModelStore(tmp_path).get("llama")
    before = torch.random.get_rng_state()
    first, second, skeleton = model.module(dtype), model.module(dtype), model.skeleton(dtype)
    assert torch.equal(torch.random.get_rng_state(), before), "the caller's random numbers have moved"
    assert_identical(first, second)
    assert {p.dtype for p in first.parameters()} == {dtype}
    for (name, one), (_, other) in zip(first.named_parameters(), skeleton.named_parameters(), strict=True):
        assert not torch.equal(one, other), f"{name} of the skeleton has the values of the model"


def test_processes_share_one_copy(tmp_path: Path) -> None:
    import multiprocessing

    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        digests = set(pool.map(_digest, [str(tmp_path)] * 2, ["gpt2"] * 2))
    assert len(digests) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpt2", "gpt2.lock"]


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="choose from llama, opt, gpt2, gptj, bert"):
        ModelStore(tmp_path).get("gpt9")
    with pytest.raises(ValueError, match=r"no config\.json"):
        from_directory(tmp_path)
    config = ModelStore(tmp_path).get("gpt2").config()
    config.architectures = ["TheirOwnForCausalLM"]
    with pytest.raises(ValueError, match="TheirOwnForCausalLM"):
        architecture(config)
