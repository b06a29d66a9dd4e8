"""Identical weights and identical outputs, from the same model in every format and from every storage."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from pytest_tensorizer.checkpoint import Checkpoint, WeightsFile
from pytest_tensorizer.engines import Engine, Generation, LoadedModel, Prompt, Sampling
from pytest_tensorizer.engines.transformers import LoadedModule
from pytest_tensorizer.formats import Format, claims
from pytest_tensorizer.formats.torch import TorchFormat
from pytest_tensorizer.identity import assert_identical
from pytest_tensorizer.models import Model
from pytest_tensorizer.storage import Storage
from pytest_tensorizer.suite.check import check
from pytest_tensorizer.suite.claims import need
from pytest_tensorizer.suite.skips import not_claimed

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
GREEDY, SEEDED = Sampling(max_new_tokens=8), Sampling(max_new_tokens=8, temperature=1.0, seed=7)

# A process for each, with room for the libraries that an engine imports.
pytestmark = pytest.mark.fresh_process(timeout=300, memory_limit="16GiB")


def _prompts(engine: Engine) -> list[Prompt]:
    tokens: list[Prompt] = [[1, 40, 91, 300, 17], [1, 222]]
    return [*tokens, "Every loader repeats the promise"] if "text" in engine.capabilities else tokens


def _run(loaded: LoadedModel, engine: Engine, prompts: Sequence[Prompt] | None = None) -> list[Generation]:
    """Greedy generations, then sampled ones where the engine claims that a seed decides them."""
    prompts = _prompts(engine) if prompts is None else prompts
    sampled = loaded.generate(prompts, SEEDED) if "sampling" in engine.capabilities else []
    return [*loaded.generate(prompts, GREEDY), *sampled]


def _assert_outputs(found: list[Generation], expected: list[Generation], engine: Engine, context: str) -> None:
    facets = {"token_ids", "text", "logprobs"} if "bitwise" in engine.capabilities else {"token_ids"}
    context = f"{context}: the weights are identical, the outputs are not"
    assert_identical(found, expected, facets=facets, context=context)


def _on_cpu(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.cpu() for name, tensor in weights.items()}


def _original(model: Model, dtype: torch.dtype, device: str) -> LoadedModule:
    """The truth: the model as it was before any format had its hands on it, run by transformers."""
    return LoadedModule(model.module(dtype), device=device, tokenizer=model.tokenizer())


@check("outputs/identical", subject="format")
@pytest.mark.parametrize("place", ["local", "s3"])
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_identical(
    tensorizer_format: Format,
    tensorizer_model: Model,
    tensorizer_engine: Engine,
    tensorizer_storage: Callable[[str], Storage],
    tensorizer_device: str,
    dtype: torch.dtype,
    place: str,
) -> None:
    """A checkpoint written by the format and loaded by the engine is the original, from the disk and from S3.

    Its weights are, bit for bit, and so is what it generates: tokens, text and log probabilities, greedily chosen and
    sampled with a seed. The engine loads into a module of other weights.
    """
    if not hasattr(tensorizer_format, "save_module"):
        not_claimed(tensorizer_format.name, "modules")
    dtype_name = str(dtype).removeprefix("torch.")
    need(tensorizer_format, f"dtype:{dtype_name}")
    if place == "s3" and claims(tensorizer_format, "s3"):  # a format that does not is handed a file
        need(tensorizer_format, "s3")
    original = _original(tensorizer_model, dtype, tensorizer_device)
    file = WeightsFile.write(
        tensorizer_model.module(dtype), tensorizer_format, tensorizer_storage(place), f"model{tensorizer_format.suffix}"
    )
    checkpoint = Checkpoint(tensorizer_model.directory, file)
    context = f"{checkpoint}, {dtype_name}"
    loaded = tensorizer_engine.load(checkpoint, device=tensorizer_device, dtype=dtype)
    assert_identical(
        _on_cpu(loaded.weights()), _on_cpu(original.weights()), context=f"{context}: other weights than the original's"
    )
    outputs = _run(original, tensorizer_engine)
    _assert_outputs(_run(loaded, tensorizer_engine), outputs, tensorizer_engine, context)
    loaded.close()


@check("outputs/engine", subject="engine")
def test_engine(
    tensorizer_engine: Engine,
    tensorizer_model: Model,
    tensorizer_storage: Callable[[str], Storage],
    tensorizer_device: str,
) -> None:
    """The engine runs on the weights that it reports.

    It loads a checkpoint written by `torch.save`, so that no other library stands between. An engine that captured a
    parameter before loading, and goes on using it, reports the right weights and generates with stale ones.
    """
    loaded = _load(tensorizer_engine, tensorizer_model, tensorizer_storage("local"), tensorizer_device)
    original = _original(tensorizer_model, torch.float32, tensorizer_device)
    assert_identical(_on_cpu(loaded.weights()), _on_cpu(original.weights()), facets={"bits", "dtype", "shape"})
    _assert_outputs(_run(loaded, tensorizer_engine), _run(original, tensorizer_engine), tensorizer_engine, "the engine")
    loaded.close()


@check("outputs/prompt-embeds", subject="engine")
def test_prompt_embeds(
    tensorizer_engine: Engine,
    tensorizer_model: Model,
    tensorizer_storage: Callable[[str], Storage],
    tensorizer_device: str,
) -> None:
    """A prompt embedding that holds the embedding rows of tokens generates what these tokens do."""
    if "prompt_embeds" not in tensorizer_engine.capabilities:
        not_claimed(tensorizer_engine.name, "prompt_embeds")
    loaded = _load(tensorizer_engine, tensorizer_model, tensorizer_storage("local"), tensorizer_device)
    tokens = [1, 40, 91, 300, 17]
    embedding: Callable[[Tensor], Tensor] = tensorizer_model.module().get_input_embeddings()  # type: ignore[operator]
    rows = embedding(torch.tensor(tokens)).detach()
    from_tokens, from_rows = (_run(loaded, tensorizer_engine, [prompt]) for prompt in (tokens, rows))
    assert_identical(from_rows, from_tokens, context="prompt embeddings against the token ids they stand for")
    loaded.close()


def _load(engine: Engine, model: Model, storage: Storage, device: str) -> LoadedModel:
    """The true model in float32, as the engine loads it from what `torch.save` wrote."""
    file = WeightsFile.write(model.module(), TorchFormat(), storage, "weights.pt")
    return engine.load(Checkpoint(model.directory, file), device=device, dtype=torch.float32)
