"""The catalogue is deterministic, and each entry is wrong in the way that its name says, and in no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pytest_tensorizer.prompt_embeds import (
    FLOATING_DTYPES,
    INVALID,
    EmbedsSpec,
    embeds,
    encode,
    load_prompt_embeds,
)

SPEC = EmbedsSpec(6, torch.float16)
ENTRIES = pytest.mark.parametrize("build", INVALID.values(), ids=list(INVALID))


def test_embeds_are_the_same_each_time_and_differ_by_seed() -> None:
    assert torch.equal(embeds(SPEC), embeds(SPEC))
    assert not torch.equal(embeds(SPEC), embeds(SPEC, seed=1))


def test_embeds_do_not_draw_from_the_global_generator() -> None:
    before = torch.get_rng_state()
    embeds(SPEC)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("dtype", FLOATING_DTYPES, ids=str)
def test_every_dtype_holds_the_embeds_exactly(dtype: torch.dtype) -> None:
    exact = embeds(SPEC, dtype=torch.float64, tokens=50)
    assert torch.equal(embeds(SPEC, dtype=dtype, tokens=50).to(torch.float64), exact)
    assert not (exact.signbit() & (exact == 0)).any()
    assert len(set(exact.flatten().tolist())) == 15


@ENTRIES
@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
def test_the_reference_loader_refuses_it(build: Callable[[EmbedsSpec], object], legacy: bool) -> None:
    payload = encode(build(SPEC), legacy=legacy)
    with pytest.raises(ValueError, match="prompt_embeds") as caught:
        load_prompt_embeds(payload, SPEC)
    assert len(str(caught.value)) < 200
    assert str(caught.value).isprintable()


@ENTRIES
def test_entries_fit_the_smallest_spec(build: Callable[[EmbedsSpec], object]) -> None:
    spec = EmbedsSpec(1, torch.bfloat16)
    with pytest.raises(ValueError, match="prompt_embeds"):
        load_prompt_embeds(encode(build(spec)), spec)


REASONS = {
    "list-of-tensors": "holds a list",
    "rank-1": r"shape \(6,\)",
    "rank-4": r"shape \(1, 1, 4, 6\)",
    "rank-3-batch-of-two": r"shape \(2, 4, 6\)",
    "wrong-hidden-size": "hidden size 7",
    "zero-rows": "no rows",
    "integer": "torch.int64",
    "bool": "torch.bool",
    "complex": "torch.complex64",
    "meta": "meta",
    "coo-index-out-of-range": "index 1048576",
    "coo-negative-index": "negative index -1",
    "coo-falsely-coalesced": "coalesced",
    "csr-bad-pointers": r"crow_indices\[..., -1\] == nnz",
    "csc-bad-pointers": r"ccol_indices\[..., -1\] == nnz",
    "csr-index-out-of-range": "col_indices < ncols",
    "bsc-index-out-of-range": "row_indices < nrows",
}


@pytest.mark.parametrize(("name", "reason"), REASONS.items(), ids=list(REASONS))
def test_entries_are_refused_for_what_their_name_says(name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        load_prompt_embeds(encode(INVALID[name](SPEC)), SPEC)


@pytest.mark.parametrize("name", [name for name in INVALID if name.startswith(("coo", "cs", "bs"))])
def test_invalid_sparse_tensors_pass_every_check_of_the_outside(name: str) -> None:
    """Shape and dtype are right: only a loader that looks at the indices can tell."""
    made = INVALID[name](SPEC)
    assert isinstance(made, Tensor)
    assert made.shape == (4, 6)
    assert made.dtype is SPEC.dtype


def test_the_catalogue_cannot_be_changed_by_accident() -> None:
    with pytest.raises(TypeError):
        INVALID["mine"] = lambda spec: None  # type: ignore[index]
