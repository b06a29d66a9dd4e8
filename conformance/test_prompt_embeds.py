"""What a server must make of the prompt embeddings that clients send, and what it must refuse."""

from __future__ import annotations

import pytest
import torch

from pytest_tensorizer.identity import assert_identical
from pytest_tensorizer.prompt_embeds import INVALID, LAYOUTS, EmbedsSpec, PromptEmbedsLoader, embeds, encode, to_layout
from pytest_tensorizer.suite.check import check

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
TAGS = ["cpu", "mps", "cuda:3"]
SPARSE = [layout for layout in LAYOUTS if layout != "dense"]
INVALID_DENSE = [name for name in INVALID if name.partition("-")[0] not in SPARSE]


def _assert_normalized(loaded: torch.Tensor, expected: torch.Tensor) -> None:
    assert isinstance(loaded, torch.Tensor), f"the loader returned {type(loaded).__name__}"
    facts = (loaded.device.type, loaded.layout, loaded.dim(), loaded.dtype)
    assert facts == ("cpu", torch.strided, 2, expected.dtype), f"device, layout, dimensions and dtype are {facts}"
    assert_identical(loaded, expected, name="prompt_embeds", facets={"bits", "shape", "dtype"})


@check("prompt-embeds/accepts", subject="prompt-embeds")
@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_accepts(tensorizer_prompt_embeds_loader: PromptEmbedsLoader, layout: str, tag: str, dtype: str) -> None:
    """An embedding saved on any device and in any layout comes out dense, 2-D, on the CPU, in the model's dtype.

    Its values are those that the client had. The client's device need not exist here: the tag that `torch.save`
    notes for each storage says where a tensor was, not where it has to go.
    """
    spec = EmbedsSpec(hidden_size=32, dtype=DTYPES[dtype])
    tensor = embeds(spec)
    payload = encode(to_layout(tensor, layout), location=tag)
    _assert_normalized(tensorizer_prompt_embeds_loader(payload, spec), tensor)


@check("prompt-embeds/casts", subject="prompt-embeds")
@pytest.mark.parametrize("sent", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("dtype", list(DTYPES))
def test_casts(tensorizer_prompt_embeds_loader: PromptEmbedsLoader, sent: str, dtype: str) -> None:
    """An embedding sent in another floating-point dtype is cast to the model's as `Tensor.to` does."""
    spec = EmbedsSpec(hidden_size=32, dtype=DTYPES[dtype])
    tensor = embeds(spec, dtype=getattr(torch, sent))
    _assert_normalized(tensorizer_prompt_embeds_loader(encode(tensor), spec), embeds(spec))


@check("prompt-embeds/squeezes", subject="prompt-embeds")
def test_squeezes(tensorizer_prompt_embeds_loader: PromptEmbedsLoader) -> None:
    """A batch of one, (1, tokens, hidden), is taken as (tokens, hidden)."""
    spec = EmbedsSpec(hidden_size=32, dtype=torch.float32)
    _assert_normalized(tensorizer_prompt_embeds_loader(encode(embeds(spec)[None]), spec), embeds(spec))


@check("prompt-embeds/rejects", subject="prompt-embeds")
@pytest.mark.parametrize("kind", ["not-base64", "empty", *INVALID_DENSE])
def test_rejects(tensorizer_prompt_embeds_loader: PromptEmbedsLoader, kind: str) -> None:
    """What is no embedding of this model is refused with a ValueError that names `prompt_embeds`."""
    spec = EmbedsSpec(hidden_size=32, dtype=torch.float32)
    payload = {"not-base64": b"%%%", "empty": b""}.get(kind)
    if payload is None:
        payload = encode(INVALID[kind](spec))
    with pytest.raises(ValueError, match="prompt_embeds"):
        tensorizer_prompt_embeds_loader(payload, spec)


@check("prompt-embeds/rejects-sparse", subject="prompt-embeds")
@pytest.mark.parametrize("layout", SPARSE)
@pytest.mark.fresh_process(timeout=120, memory_limit="8GiB")
def test_rejects_sparse(tensorizer_prompt_embeds_loader: PromptEmbedsLoader, layout: str) -> None:
    """A sparse tensor whose indices are invalid is refused before it is made dense, which would write elsewhere.

    Each kind of damage is followed by a valid payload, which has to be accepted.
    """
    spec = EmbedsSpec(hidden_size=32, dtype=torch.float32)
    valid = encode(to_layout(embeds(spec), layout))
    for kind in [name for name in INVALID if name.startswith(f"{layout}-")]:
        print(f"a payload that is {kind}")
        with pytest.raises(ValueError, match="prompt_embeds"):
            tensorizer_prompt_embeds_loader(encode(INVALID[kind](spec)), spec)
        _assert_normalized(tensorizer_prompt_embeds_loader(valid, spec), embeds(spec))
