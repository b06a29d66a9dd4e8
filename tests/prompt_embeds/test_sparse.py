"""Sparse embeddings become the dense ones that torch's own conversion gives for valid input."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_tensorizer.prompt_embeds import (
    FLOATING_DTYPES,
    INVALID,
    LAYOUTS,
    EmbedsSpec,
    embeds,
    encode,
    load_prompt_embeds,
    to_layout,
)

SPEC = EmbedsSpec(6, torch.float32)
WIDE_DTYPES = [dtype for dtype in FLOATING_DTYPES if dtype.itemsize > 1]


def drawn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("leading", [False, True])
@pytest.mark.parametrize("dtype", FLOATING_DTYPES, ids=str)
def test_every_layout_dtype_and_leading_one(layout: str, leading: bool, dtype: torch.dtype) -> None:
    dense = embeds(SPEC, dtype=dtype)
    sent = to_layout(dense[None] if leading else dense, layout)
    assert torch.equal(load_prompt_embeds(encode(sent), SPEC), dense.to(torch.float32))


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "bsc"])
def test_index_dtypes(layout: str, index_dtype: torch.dtype) -> None:
    good = to_layout(embeds(SPEC), layout)
    by_row = layout in ("csr", "bsr")
    parts = (good.crow_indices(), good.col_indices()) if by_row else (good.ccol_indices(), good.row_indices())
    compressed, plain = (part.to(index_dtype) for part in parts)
    sent = torch.sparse_compressed_tensor(compressed, plain, good.values(), good.shape, layout=good.layout)
    assert torch.equal(load_prompt_embeds(encode(sent), SPEC), embeds(SPEC))


@pytest.mark.parametrize("dtype", WIDE_DTYPES, ids=str)
def test_duplicates_are_summed_as_the_client_would(dtype: torch.dtype) -> None:
    """In the client's dtype and in the order stored: only then do rounded sums agree bit for bit."""
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        where = torch.stack([torch.randint(0, size, (60,), generator=generator) for size in (4, 6)])
        sent = torch.sparse_coo_tensor(where, drawn(60, dtype=dtype, seed=seed), (4, 6))
        assert torch.equal(load_prompt_embeds(encode(sent), SPEC), sent.to_dense().to(torch.float32))


def test_duplicates_of_8_bit_floats_are_summed_too() -> None:
    values = torch.tensor([0.25, 1.5, -0.5]).to(torch.float8_e4m3fn)
    sent = torch.sparse_coo_tensor(torch.tensor([[1, 1, 0], [2, 2, 5]]), values, (4, 6))
    expected = torch.zeros(4, 6)
    expected[1, 2], expected[0, 5] = 1.75, -0.5
    assert torch.equal(load_prompt_embeds(encode(sent), SPEC), expected)


@pytest.mark.parametrize(
    ("where", "values", "shape"),
    [
        ([[0, 2, 2]], (3, 6), (4, 6)),
        ([[0, 0, 0], [0, 2, 2]], (3, 6), (1, 4, 6)),
        ([[0, 0]], (2, 4, 6), (1, 4, 6)),
    ],
    ids=["rows", "batch-and-rows", "batch"],
)
def test_hybrid_coo(where: list[list[int]], values: tuple[int, ...], shape: tuple[int, ...]) -> None:
    sent = torch.sparse_coo_tensor(torch.tensor(where), drawn(*values), shape)
    assert torch.equal(load_prompt_embeds(encode(sent), SPEC), sent.to_dense().view(4, 6))


def test_coo_without_sparse_dimensions() -> None:
    values = drawn(2, 4, 6)
    sent = torch.sparse_coo_tensor(torch.empty(0, 2, dtype=torch.int64), values, (4, 6))
    assert torch.equal(load_prompt_embeds(encode(sent), SPEC), values[0] + values[1])


def test_compressed_with_dense_dimension() -> None:
    sent = torch.sparse_csr_tensor(torch.tensor([0, 2]), torch.tensor([0, 3]), drawn(2, 6), (1, 4, 6))
    assert torch.equal(load_prompt_embeds(encode(sent), SPEC), sent.to_dense()[0])


@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "bsc"])
def test_nothing_stored_is_all_zero(layout: str) -> None:
    sent = to_layout(torch.zeros(4, 6), layout)
    assert torch.equal(load_prompt_embeds(encode(sent), SPEC), torch.zeros(4, 6))


@pytest.mark.parametrize("coalesced", [True, False])
def test_a_stored_negative_zero_stays_one(coalesced: bool) -> None:
    where, value = torch.tensor([[1], [2]]), torch.tensor([-0.0])
    sent = torch.sparse_coo_tensor(where, value, (4, 6), is_coalesced=coalesced)
    result = load_prompt_embeds(encode(sent), SPEC)
    assert result[1, 2].signbit()
    assert int(result.signbit().sum()) == 1


@pytest.mark.parametrize("columns", [[1, 1], [2, 1]], ids=["repeated", "unsorted"])
def test_csr_columns_must_be_sorted_and_distinct(columns: list[int]) -> None:
    sent = torch.sparse_csr_tensor(
        torch.tensor([0, 2, 2, 2, 2]), torch.tensor(columns), torch.ones(2), (4, 6), check_invariants=False
    )
    with pytest.raises(ValueError, match="sorted and distinct"):
        load_prompt_embeds(encode(sent), SPEC)


@pytest.mark.parametrize("indices", [1 << 24, 5000])
def test_indices_that_only_strides_declare_are_refused(indices: int) -> None:
    sent = torch.sparse_coo_tensor(
        torch.zeros(2, 1, dtype=torch.int64).expand(2, indices),
        torch.ones(1).expand(indices),
        (4, 6),
        check_invariants=False,
    )
    with pytest.raises(ValueError, match=f"declares {2 * indices} entries"):
        load_prompt_embeds(encode(sent), SPEC)


@pytest.mark.parametrize("layout", ["coo", "csr", "bsc"])
@pytest.mark.parametrize("switch", [True, False])
def test_the_global_switch_changes_nothing_and_is_not_changed(layout: str, switch: bool) -> None:
    checks: Any = torch.sparse.check_sparse_tensor_invariants
    with checks(enable=switch):
        result = load_prompt_embeds(encode(to_layout(embeds(SPEC), layout)), SPEC)
        with pytest.raises(ValueError, match="prompt_embeds"):
            load_prompt_embeds(encode(INVALID[f"{layout}-negative-index"](SPEC)), SPEC)
        assert checks.is_enabled() is switch
    assert torch.equal(result, embeds(SPEC))


# torch's own conversion of such a tensor ends the process, so that a loader which calls it must not run in
# this one.
_ZERO_BLOCKS = """
import warnings
warnings.simplefilter("error")  # valid payloads must not need torch's one-time warnings to have been seen
from pytest_tensorizer.prompt_embeds import *
import torch
spec = EmbedsSpec(6, torch.float32)
assert torch.equal(load_prompt_embeds(encode(embeds(spec).to_sparse()), spec), embeds(spec))
for kind in torch.sparse_bsr, torch.sparse_bsc:
    for block in (0, 1), (1, 0), (0, 0), (2, 0):
        pointers = torch.zeros(1 + (4, 6)[kind is torch.sparse_bsc], dtype=torch.int64)
        plain = torch.zeros(0, dtype=torch.int64)
        sent = torch.sparse_compressed_tensor(
            pointers, plain, torch.empty(0, *block), (4, 6), layout=kind, check_invariants=False
        )
        try:
            load_prompt_embeds(encode(sent), spec)
        except ValueError as error:
            assert "blocks of size" in str(error), error
        else:
            raise AssertionError(f"{kind} {block} was accepted")
print("refused all")
"""


def test_blocks_of_size_zero_are_refused_before_they_are_touched() -> None:
    done = subprocess.run([sys.executable, "-c", _ZERO_BLOCKS], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "refused all"), done.stderr
