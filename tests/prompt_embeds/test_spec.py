"""A spec that no model can mean is refused where it is written, not where it is used."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from pytest_tensorizer.prompt_embeds import FLOATING_DTYPES, EmbedsSpec


@pytest.mark.parametrize("dtype", FLOATING_DTYPES, ids=str)
def test_every_floating_dtype_is_accepted(dtype: torch.dtype) -> None:
    assert EmbedsSpec(8, dtype).dtype is dtype


@pytest.mark.parametrize("value", [True, 8.0, "8", None])
def test_hidden_size_of_the_wrong_type(value: object) -> None:
    with pytest.raises(TypeError, match=r"hidden_size=.* at least 1"):
        EmbedsSpec(value, torch.float32)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, -1])
def test_hidden_size_too_small(value: int) -> None:
    with pytest.raises(ValueError, match=f"hidden_size={value} is too small"):
        EmbedsSpec(value, torch.float32)


def test_dtype_of_the_wrong_type() -> None:
    with pytest.raises(TypeError, match=r"dtype='float32' is no torch\.dtype"):
        EmbedsSpec(8, "float32")  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64, torch.float8_e8m0fnu], ids=str)
def test_dtype_that_holds_no_embeddings(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match=rf"dtype={dtype} .* torch.bfloat16"):
        EmbedsSpec(8, dtype)


@pytest.mark.parametrize(("value", "kind"), [(0, ValueError), (-5, ValueError), (1.5, TypeError), (True, TypeError)])
def test_max_bytes_is_checked(value: object, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="max_bytes="):
        EmbedsSpec(8, torch.float32, max_bytes=value)  # type: ignore[arg-type]


def test_nbytes_counts_the_dense_result() -> None:
    assert EmbedsSpec(8, torch.float16).nbytes(3) == 3 * 8 * 2


def test_a_spec_is_a_value() -> None:
    spec = EmbedsSpec(8, torch.float32)
    assert spec == EmbedsSpec(8, torch.float32, None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.hidden_size = 9  # type: ignore[misc]
