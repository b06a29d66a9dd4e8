"""How a strided tensor lies in its storage: the kinds that occur, and the strides that each means for a shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Lie(NamedTuple):
    """Strides and offset in elements, and the elements of the storage: None means no more than there have to be."""

    strides: tuple[int, ...]
    offset: int
    size: int | None


Shape = tuple[int, ...]
_MARGIN = 3  # elements around those of a tensor that is a view of a larger storage


def contiguous_strides(shape: Shape) -> tuple[int, ...]:
    """Those that torch gives a new tensor: the last dimension is the densest."""
    strides: list[int] = []
    step = 1
    for side in reversed(shape):
        strides.insert(0, step)
        step *= max(side, 1)
    return tuple(strides)


def extent(shape: Shape, strides: tuple[int, ...]) -> int:
    """The elements from the first to the last, inclusive; 0 of a tensor without elements."""
    if 0 in shape:
        return 0
    return 1 + sum((side - 1) * stride for side, stride in zip(shape, strides, strict=True))


def overlaps(shape: Shape, strides: tuple[int, ...]) -> bool:
    """Whether some elements may share their memory: a tensor that can be read, but not be copied to."""
    covered = 0
    for stride, side in sorted((stride, side) for side, stride in zip(shape, strides, strict=True) if side > 1):
        if stride <= covered:
            return True
        covered += stride * (side - 1)
    return False


def ordered(shape: Shape, order: tuple[int, ...]) -> tuple[int, ...]:
    """Strides without gaps for dimensions that lie in memory in this `order`, the densest last."""
    strides = [0] * len(shape)
    for dim, stride in zip(order, contiguous_strides(tuple(shape[dim] for dim in order)), strict=True):
        strides[dim] = stride
    return tuple(strides)


def _sides(shape: Shape) -> list[int]:
    """The dimensions along which there is more than one element."""
    return [dim for dim, side in enumerate(shape) if side > 1]


def _transposed(shape: Shape, variant: int) -> tuple[int, ...]:
    dims = tuple(range(len(shape)))
    swapped = (*dims[:-2], dims[-1], dims[-2])
    return ordered(shape, (swapped, dims[::-1], (*dims[1:], dims[0]))[variant])


def _stepped(shape: Shape, variant: int) -> tuple[int, ...]:
    """Every second or third element of a larger tensor, along the last dimension, the first, or all.

    All that have more than one element: of many dimensions the storage would else be huge.
    """
    step, dims = ((2, [-1]), (3, [0]), (2, _sides(shape) or [-1]))[variant]
    larger = list(shape)
    for dim in dims:
        larger[dim] *= step
    strides = list(contiguous_strides(tuple(larger)))
    for dim in dims:
        strides[dim] *= step
    return tuple(strides)


def _expanded(shape: Shape, variant: int) -> tuple[int, ...]:
    """One copy in memory for all along the first dimension, the last, or every one."""
    sides = _sides(shape)
    repeated = (sides[:1], sides[-1:], sides)[variant]
    strides = contiguous_strides(tuple(1 if dim in repeated else side for dim, side in enumerate(shape)))
    return tuple(0 if dim in repeated else stride for dim, stride in enumerate(strides))


def _overlapping(shape: Shape, variant: int) -> tuple[int, ...]:
    """Windows that slide over the storage by one element, as `Tensor.unfold` makes them."""
    return (1,) * len(shape)


def _channels_last(shape: Shape, variant: int) -> tuple[int, ...]:
    return ordered(shape, (0, *range(2, len(shape)), 1))


def _contiguous(shape: Shape, variant: int) -> tuple[int, ...]:
    return contiguous_strides(shape)


# Those first which more shapes can have, so that the number of a kind mostly stays when a shape gets simpler.
_MAKERS: dict[str, Callable[[Shape, int], tuple[int, ...]]] = {
    "contiguous": _contiguous,
    "offset": _contiguous,
    "larger-storage": _contiguous,
    "stepped": _stepped,
    "transposed": _transposed,
    "expanded": _expanded,
    "overlapping": _overlapping,
    "channels-last": _channels_last,
}
KINDS = tuple(_MAKERS)
"""Kinds of strides, the simplest first. "offset" begins inside a storage, and "larger-storage" ends before its end."""

VARIANTS = 3
"""The ways in which "transposed", "stepped" and "expanded" can be; the others have but one."""
VARIED = frozenset({"transposed", "stepped", "expanded"})


def possible(shape: Shape) -> tuple[str, ...]:
    """The kinds that a tensor of `shape` can have: a scalar cannot be transposed."""
    sides = len(_sides(shape))
    wanted = {"transposed": len(shape) > 1, "stepped": len(shape) > 0, "expanded": sides > 0 and 0 not in shape,
              "overlapping": sides > 1 and 0 not in shape, "channels-last": len(shape) in (4, 5)}  # fmt: skip
    return tuple(kind for kind in KINDS if wanted.get(kind, True))


def lie(shape: Shape, kind: str, variant: int = 0) -> Lie:
    """What `kind`, one of `possible(shape)`, means for `shape`; `variant` is below VARIANTS."""
    strides = _MAKERS[kind](shape, variant)
    offset = _MARGIN if kind == "offset" else 0
    return Lie(strides, offset, extent(shape, strides) + _MARGIN if kind == "larger-storage" else None)
