"""Every layout holds the values that it was made from."""

from __future__ import annotations

import pytest
import torch

from pytest_tensorizer.prompt_embeds import FLOATING_DTYPES, LAYOUTS, EmbedsSpec, embeds, to_layout

KINDS = {
    "dense": torch.strided,
    "coo": torch.sparse_coo,
    "csr": torch.sparse_csr,
    "csc": torch.sparse_csc,
    "bsr": torch.sparse_bsr,
    "bsc": torch.sparse_bsc,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("hidden", [1, 5, 6])
@pytest.mark.parametrize("leading", [False, True])
def test_layout_shape_and_values(layout: str, hidden: int, leading: bool) -> None:
    dense = embeds(EmbedsSpec(hidden, torch.float32))
    dense = dense[None] if leading else dense
    made = to_layout(dense, layout)
    assert made.layout is KINDS[layout]
    assert made.shape == dense.shape
    assert torch.equal(made.to_dense(), dense)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATING_DTYPES, ids=str)
def test_every_dtype_has_every_layout(layout: str, dtype: torch.dtype) -> None:
    made = to_layout(embeds(EmbedsSpec(6, dtype)), layout)
    assert made.dtype is dtype
    assert made.layout is KINDS[layout]


def test_blocks_are_real_blocks() -> None:
    assert to_layout(embeds(EmbedsSpec(6, torch.float32)), "bsr").values().shape[1:] == (2, 2)
    assert to_layout(embeds(EmbedsSpec(5, torch.float32)), "bsc").values().shape[1:] == (2, 1)


def test_sparse_layouts_leave_zeros_out() -> None:
    dense = embeds(EmbedsSpec(6, torch.float32))
    stored = int((dense != 0).sum())
    assert 0 < stored < dense.numel()
    assert to_layout(dense, "coo").values().numel() == stored
    assert to_layout(dense, "csr").values().numel() == stored


def test_unknown_layout() -> None:
    with pytest.raises(ValueError, match=r"layout='dia' is unknown: use one of dense, coo"):
        to_layout(torch.ones(2, 2), "dia")


@pytest.mark.parametrize("shape", [(4,), (2, 4, 6), (1, 1, 4, 6)])
def test_a_shape_that_is_no_embedding(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="dense has shape"):
        to_layout(torch.ones(shape), "csr")
