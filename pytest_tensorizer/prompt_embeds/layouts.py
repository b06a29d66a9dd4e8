"""The same embedding in every layout in which a client may send it."""

from __future__ import annotations

import torch
from torch import Tensor

from pytest_tensorizer.prompt_embeds.sparse import use_up_torch_warnings

LAYOUTS = ("dense", "coo", "csr", "csc", "bsr", "bsc")
"""The names that `to_layout` knows."""


def to_layout(dense: Tensor, layout: str) -> Tensor:
    """`dense` in another layout, with the values that it has.

    Args:
        dense: a strided tensor of shape `(rows, columns)` or `(1, rows, columns)`, of a floating-point dtype.
            Only values other than zero are stored in a sparse layout, so -0.0 becomes 0.0 there.
        layout: one of `LAYOUTS`. The blocks of "bsr" and "bsc" measure 2 along every even side, else 1.

    Raises:
        ValueError: `layout` is unknown, or `dense` has another number of dimensions.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout={layout!r} is unknown: use one of {', '.join(LAYOUTS)}")
    if dense.dim() not in (2, 3) or (dense.dim() == 3 and dense.shape[0] != 1):
        raise ValueError(f"dense has shape {tuple(dense.shape)}: pass (rows, columns) or (1, rows, columns)")
    use_up_torch_warnings()
    block = tuple(2 - side % 2 for side in dense.shape[-2:])
    if layout == "coo":
        return _to_coo(dense)
    if layout == "csr":
        return dense.to_sparse_csr()
    if layout == "csc":
        return dense.to_sparse_csc()
    if layout == "bsr":
        return dense.to_sparse_bsr(block)
    if layout == "bsc":
        return dense.to_sparse_bsc(block)
    return dense


def _to_coo(dense: Tensor) -> Tensor:
    # Not `dense.to_sparse()`, which cannot find the zeros of an 8-bit float. No float loses a value in
    # float64.
    where = dense.to(torch.float64).nonzero(as_tuple=True)
    values = dense[where]
    return torch.sparse_coo_tensor(
        torch.stack(where),
        values,
        dense.shape,
        device=dense.device,
        is_coalesced=True,
        check_invariants=True,
    )
