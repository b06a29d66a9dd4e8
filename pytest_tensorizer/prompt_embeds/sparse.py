"""Dense tensors from sparse ones that a stranger sent.

`Tensor.to_dense` trusts its input: an index out of range writes outside the buffer, and a block of size zero
ends the process. So every sparse tensor is validated first, and then written into a dense one here, straight
into the dtype that is wanted: no intermediate in the dtype that the client happened to use.
The caller sees to it that the CPU is the default device meanwhile.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from pytest_tensorizer.prompt_embeds.rejection import rejection

COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
_BY_COLUMN = (torch.sparse_csc, torch.sparse_bsc)
_BLOCKED = (torch.sparse_bsr, torch.sparse_bsc)


def fill_from_sparse(out: Tensor, sparse: Tensor, *, cast: Callable[[Tensor], Tensor], most_entries: int) -> None:
    """Write the values of `sparse` into `out`.

    Args:
        out: contiguous zeros on the CPU, of shape `(tokens, hidden)`.
        sparse: a COO, CSR, CSC, BSR or BSC tensor of shape `(tokens, hidden)` or `(1, tokens, hidden)`, not
            validated. Duplicates of an uncoalesced COO tensor are summed in the order stored, in the dtype of
            `sparse` (8-bit floats in float32).
        cast: turns values of the dtype of `sparse` into values of the dtype of `out`.
        most_entries: no part of `sparse` may have more elements. Stride 0 lets a few bytes declare any number
            of indices, and validation takes time and memory for each.

    Raises:
        PromptEmbedsRejected: `sparse` breaks an invariant of its layout or has too many entries.
    """
    if sparse.layout == torch.sparse_coo:
        _fill_from_coo(out, sparse, cast, most_entries)
    else:
        _fill_from_compressed(out, sparse, cast, most_entries)


def _fill_from_coo(out: Tensor, sparse: Tensor, cast: Callable[[Tensor], Tensor], most_entries: int) -> None:
    # The public accessors refuse an uncoalesced tensor, and coalescing one with wild indices is undefined.
    indices, values = sparse._indices(), sparse._values()
    _refuse_too_many_entries(sparse, (indices, values), most_entries)
    claims_coalesced = sparse.is_coalesced()
    _validate(
        sparse,
        lambda: torch.sparse_coo_tensor(
            indices,
            values,
            sparse.shape,
            check_invariants=True,
            is_coalesced=claims_coalesced,
        ),
    )
    slots = torch.zeros(indices.shape[1], dtype=torch.int64)
    for index, length in zip(indices, sparse.shape, strict=False):  # those without an index are dense
        slots = slots * length + index
    if not claims_coalesced:
        slots, values = _sum_by_slot(slots, values)
    out.view(-1, *sparse.shape[len(indices) :])[slots] = cast(values)


def _sum_by_slot(slots: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct `slots`, and for each the sum of its `values`, added in the order in which they came.

    That is the order of `to_dense`, so the sums agree with it bit for bit; those of `coalesce` do not.
    """
    if values.dtype.itemsize == 1:
        values = values.to(torch.float32)  # torch cannot add 8-bit floats
    distinct, place = torch.unique(slots, return_inverse=True)
    # -0.0, not 0.0, is what leaves every float as it is when added to it.
    sums = torch.full((len(distinct), *values.shape[1:]), -0.0, dtype=values.dtype)
    return distinct, sums.index_add_(0, place, values)


def _fill_from_compressed(out: Tensor, sparse: Tensor, cast: Callable[[Tensor], Tensor], most_entries: int) -> None:
    by_column, blocked = sparse.layout in _BY_COLUMN, sparse.layout in _BLOCKED
    compressed = sparse.ccol_indices() if by_column else sparse.crow_indices()
    plain = sparse.row_indices() if by_column else sparse.col_indices()
    values = sparse.values()
    _refuse_too_many_entries(sparse, (compressed, plain, values), most_entries)
    batched = compressed.dim() == 2
    block = tuple(values.shape[1 + batched : 3 + batched]) if blocked else (1, 1)
    if len(block) != 2 or 0 in block:
        # torch's own validation accepts a block without elements.
        raise rejection(f"{sparse.layout} tensor with blocks of size {block}: send blocks of at least 1 by 1")
    _validate(
        sparse,
        lambda: torch.sparse_compressed_tensor(
            compressed,
            plain,
            values,
            sparse.shape,
            layout=sparse.layout,
            check_invariants=True,
        ),
    )
    shape = sparse.shape
    if batched:
        # Only a leading 1 gets here, so that the batch holds exactly one matrix.
        compressed, plain, values, shape = compressed[0], plain[0], values[0], shape[1:]
    (rows, columns), rest = shape[:2], shape[2:]
    (high, wide) = block
    counts = compressed.diff()
    outer = torch.repeat_interleave(torch.arange(len(counts)), counts)
    inner = plain.to(torch.int64)
    row, column = (inner, outer) if by_column else (outer, inner)
    grid = out.view(rows // high, high, columns // wide, wide, *rest).transpose(1, 2)
    grid[row, column] = cast(values).view(len(values), high, wide, *rest)


def _refuse_too_many_entries(sparse: Tensor, parts: tuple[Tensor, ...], most_entries: int) -> None:
    largest = max(part.numel() for part in parts)
    if largest > most_entries:
        raise rejection(f"{sparse.layout} tensor declares {largest} entries where at most {most_entries} are plausible")


def _validate(sparse: Tensor, build: Callable[[], Tensor]) -> None:
    # Built anew with the check asked for in the call: the global switch belongs to the process, and setting
    # it here would change what other threads do meanwhile.
    try:
        build()
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        raise rejection(f"invalid {sparse.layout} tensor of shape {tuple(sparse.shape)}: {error}") from error


@functools.lru_cache(maxsize=1)
def use_up_torch_warnings() -> None:
    """Let torch say once, to nobody, that its sparse layouts are in beta and its checks off by default.

    It says so once a process, in whatever call comes first. Where warnings are errors, that would make the
    first valid sparse payload look like a bad one.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.ones(1, 1, device="cpu").to_sparse_csr()
        torch.sparse_coo_tensor(torch.zeros(2, 1, dtype=torch.int64, device="cpu"), torch.ones(1, device="cpu"))
