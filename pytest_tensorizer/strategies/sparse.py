"""Sparse tensors as data, with the dense value that each stands for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument
from torch import Tensor

from pytest_tensorizer.strategies import arguments, words
from pytest_tensorizer.strategies.arguments import Argument
from pytest_tensorizer.strategies.code import Code
from pytest_tensorizer.strategies.dense import tensor_of
from pytest_tensorizer.strategies.dtypes import QUANTIZED, all_dtypes, is_float
from pytest_tensorizer.strategies.indices import indices
from pytest_tensorizer.strategies.shapes import shapes
from pytest_tensorizer.strategies.words import Element

COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
LAYOUTS = (torch.sparse_coo, *COMPRESSED)
BY_COLUMN = (torch.sparse_csc, torch.sparse_bsc)
BLOCKED = (torch.sparse_bsr, torch.sparse_bsc)
INDEX_DTYPES = (torch.int64, torch.int32)

Cell = tuple[int, ...]


@dataclass(frozen=True, repr=False)
class Coo(Code):
    """A COO tensor. The repr is code that makes this specification.

    Attributes:
        dtype, shape: of the tensor.
        cells: the index of each entry, in the order in which they are stored: `sparse_dim` ints each.
        data: the elements of the entries, one entry after the other, as of `Dense`: they begin again where they are too
            few, and zero bits stand for none.
        sparse_dim: how many of the dimensions have indices; the others are dense. None means all.
        coalesced: whether the tensor says that its cells are sorted and occur once.

    Where a cell occurs more than once, the entries are added: they have to be numbers whose sum is exact in `dtype`.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    cells: tuple[Cell, ...] = ()
    data: Sequence[Element] | bytes = b""
    sparse_dim: int | None = None
    coalesced: bool = False

    def __post_init__(self) -> None:
        _take_words(self)

    @property
    def layout(self) -> torch.layout:
        return torch.sparse_coo

    def build(self) -> Tensor:
        """The tensor. torch has checked the indices."""
        dims = len(self.shape) if self.sparse_dim is None else self.sparse_dim
        indices = torch.tensor(self.cells, dtype=torch.int64, device="cpu").reshape(len(self.cells), dims).t()
        values = tensor_of(self._entries(), self.dtype).view(len(self.cells), *self.shape[dims:])
        return torch.sparse_coo_tensor(
            indices.contiguous(), values, self.shape, is_coalesced=self.coalesced, check_invariants=True, device="cpu"
        )

    def dense(self) -> Tensor:
        """What the tensor stands for, as a dense one made of the cells and the data, without torch's conversions."""
        each = math.prod(self.shape[len(self.shape) if self.sparse_dim is None else self.sparse_dim :])
        size = each * self.dtype.itemsize
        memory, entries, seen = bytearray(math.prod(self.shape) * self.dtype.itemsize), self._entries(), set[Cell]()
        for number, cell in enumerate(self.cells):
            start = _position(cell, self.shape) * size
            entry = entries[number * size : (number + 1) * size]
            if cell in seen:
                entry = _sum(self.dtype, bytes(memory[start : start + size]), entry)
            seen.add(cell)
            memory[start : start + size] = entry
        return tensor_of(bytes(memory), self.dtype).view(self.shape)

    def _entries(self) -> bytes:
        dims = len(self.shape) if self.sparse_dim is None else self.sparse_dim
        return _entries(self, len(self.cells) * math.prod(self.shape[dims:]))

    @property
    def traits(self) -> frozenset[str]:
        """What is particular about it: "sparse_coo", "coalesced", "duplicates", "hybrid", …"""
        dims = len(self.shape) if self.sparse_dim is None else self.sparse_dim
        flags = {
            "coalesced": self.coalesced, "uncoalesced": not self.coalesced,
            "duplicates": len(set(self.cells)) < len(self.cells),
            "unsorted": list(self.cells) != sorted(self.cells), "hybrid": dims < len(self.shape),
            "no-sparse-dims": dims == 0, "no-entries": not self.cells,
        }  # fmt: skip
        return _traits(self, flags)

    def __repr__(self) -> str:
        return _code(self, [repr(self.dtype), repr(self.shape), repr(self.cells)], sparse_dim=None, coalesced=False)


@dataclass(frozen=True, repr=False)
class Compressed(Code):
    """A CSR, CSC, BSR or BSC tensor. The repr is code that makes this specification.

    Attributes:
        layout, dtype, shape: of the tensor. The shape is that of the batch, then rows and columns, then the dense ones.
        cells: for each matrix of the batch, (row, column) of each entry, or of each block; as many in each.
        data: the elements of the entries, as of `Coo`, in the order in which torch stores the cells.
        block: the sides of a block: (1, 1) but for BSR and BSC. They divide rows and columns.
        index_dtype: torch.int64 or torch.int32.
        dense_dim: how many dimensions come after rows and columns.
    """

    layout: torch.layout
    dtype: torch.dtype
    shape: tuple[int, ...]
    cells: tuple[tuple[tuple[int, int], ...], ...] = ((),)
    data: Sequence[Element] | bytes = b""
    block: tuple[int, int] = (1, 1)
    index_dtype: torch.dtype = torch.int64
    dense_dim: int = 0

    def __post_init__(self) -> None:
        _take_words(self)

    @property
    def _split(self) -> tuple[tuple[int, ...], int, int, tuple[int, ...]]:
        """(batch, rows, columns, dense sides)"""
        end = len(self.shape) - self.dense_dim
        rows, columns = self.shape[end - 2 : end]
        return self.shape[: end - 2], rows, columns, self.shape[end:]

    def build(self) -> Tensor:
        """The tensor. torch has checked the indices."""
        batch, rows, columns, rest = self._split
        by_column = self.layout in BY_COLUMN
        lines = columns // self.block[1] if by_column else rows // self.block[0]
        starts, plain = [], []
        for cells in self._stored():
            outer = [cell[by_column] for cell in cells]
            starts.append([sum(line < until for line in outer) for until in range(lines + 1)])
            plain.append([cell[not by_column] for cell in cells])
        entries = len(plain[0]) if plain else 0
        block = self.block if self.layout in BLOCKED else ()
        return torch.sparse_compressed_tensor(
            torch.tensor(starts, dtype=self.index_dtype, device="cpu").reshape(*batch, lines + 1),
            torch.tensor(plain, dtype=self.index_dtype, device="cpu").reshape(*batch, entries),
            tensor_of(self._entries(), self.dtype).view(*batch, entries, *block, *rest),
            self.shape,
            layout=self.layout,
            check_invariants=True,
            device="cpu",
        )

    def dense(self) -> Tensor:
        """What the tensor stands for, as a dense one made of the cells and the data, without torch's conversions."""
        _, rows, columns, rest = self._split
        high, wide = self.block
        size = math.prod(rest) * self.dtype.itemsize
        memory, entries = bytearray(math.prod(self.shape) * self.dtype.itemsize), iter(_chunks(self._entries(), size))
        for number, cells in enumerate(self._stored()):
            for row, column in cells:
                for down, right in itertools.product(range(high), range(wide)):
                    place = (number * rows + row * high + down) * columns + column * wide + right
                    memory[place * size : (place + 1) * size] = next(entries)
        return tensor_of(bytes(memory), self.dtype).view(self.shape)

    def _stored(self) -> list[list[tuple[int, int]]]:
        """The cells in the order in which torch stores them: by line, and sorted in each."""
        key = (lambda cell: cell[::-1]) if self.layout in BY_COLUMN else (lambda cell: cell)
        return [sorted(cells, key=key) for cells in self.cells]

    def _entries(self) -> bytes:
        return _entries(self, sum(map(len, self.cells)) * math.prod(self.block) * math.prod(self._split[3]))

    @property
    def traits(self) -> frozenset[str]:
        """What is particular about it: "sparse_bsr", "blocks", "int32-indices", "batched", …"""
        flags = {
            "blocks": self.block != (1, 1), "int32-indices": self.index_dtype is torch.int32,
            "batched": len(self._split[0]) > 0, "hybrid": self.dense_dim > 0, "no-entries": not any(self.cells),
        }  # fmt: skip
        return _traits(self, flags)

    def __repr__(self) -> str:
        parts = [*map(repr, (self.layout, self.dtype, self.shape, self.cells))]
        return _code(self, parts, block=(1, 1), index_dtype=torch.int64, dense_dim=0)


Sparse = Coo | Compressed


def _take_words(spec: Any) -> None:
    data = spec.data if isinstance(spec.data, bytes) else words.words(spec.dtype, spec.data)
    object.__setattr__(spec, "data", data)
    used = spec._entries()[: len(data)]
    # Without what has no effect, and which the repr would leave out, so that equal tensors are equal.
    object.__setattr__(spec, "data", used if any(used) else b"")


def _entries(spec: Any, count: int) -> bytes:
    length = count * spec.dtype.itemsize
    return (spec.data * (length // len(spec.data) + 1))[:length] if spec.data else bytes(length)


def _chunks(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size)) if size else itertools.repeat(b"")


def _code(spec: Any, parts: list[str], **defaults: Any) -> str:
    if spec.data:
        parts.append(repr(words.elements(spec.dtype, spec.data)))
    parts += [f"{name}={getattr(spec, name)!r}" for name, value in defaults.items() if getattr(spec, name) != value]
    return f"{type(spec).__name__}({', '.join(parts)})"


def _traits(spec: Any, flags: dict[str, bool]) -> frozenset[str]:
    names = {str(spec.layout).removeprefix("torch."), f"dtype:{str(spec.dtype).removeprefix('torch.')}"}
    return frozenset(names | {name for name, is_so in flags.items() if is_so})


def _position(cell: Cell, shape: tuple[int, ...]) -> int:
    position = 0
    for index, side in zip(cell, shape, strict=False):
        position = position * side + index
    return position


def _sum(dtype: torch.dtype, one: bytes, other: bytes) -> bytes:
    pairs = zip(words.elements(dtype, one), words.elements(dtype, other), strict=True)
    total: list[Any] = [a + b for a, b in pairs]  # type: ignore[operator]
    return words.words(dtype, [bool(number) for number in total] if dtype is torch.bool else total)


# What can be added up three times without rounding, in every dtype that has numbers.
_ADDABLE = {True: (0.0, 1.0, 2.0, -1.0, -2.0), False: (0, 1, 2, 3, 4)}
_TIMES = 3
_CELLS = 8
_DTYPES = st.sampled_from([dtype for dtype in all_dtypes() if dtype not in QUANTIZED])
_SIDE = (1, 2, 4, 6, 3, 5, 8, 1, 2, 4, 6, 0)
_BYTES = st.binary(max_size=24)
_LAYOUT = st.sampled_from((torch.sparse_coo, *LAYOUTS))  # there are as many kinds of COO as of all the others
_ORDER = st.sampled_from(("coalesced", "sorted", "drawn", "drawn"))
_SIDES = indices(len(_SIDE), min_size=2, max_size=2)
_DIMS = st.sampled_from(range(12))
_SHIFT = st.sampled_from(range(5))
_INDEX_DTYPE = st.sampled_from(INDEX_DTYPES)
_COO_SHAPES = shapes(max_dims=4, max_elements=64)
_BATCH = st.sampled_from(((), (), (), (1,), (2,), (3,), (1, 2), (2, 1, 2)))
_REST = st.sampled_from(((), (), (), (1,), (2,), (2, 2)))


def sparse_tensors(
    dtype: torch.dtype | st.SearchStrategy[torch.dtype] | None = None,
    shape: tuple[int, ...] | st.SearchStrategy[tuple[int, ...]] | None = None,
    *,
    layout: torch.layout | st.SearchStrategy[torch.layout] | None = None,
) -> st.SearchStrategy[Sparse]:
    """A sparse tensor with its oracle: `build()` makes the tensor, and `dense()` what it stands for.

    The dense value comes out of what was drawn, never out of torch's own conversions. Each argument is a value or a
    strategy; None means anything.

    Args:
        dtype: of the tensor; not a quantized one.
        shape: of the tensor, with the batch and the dense dimensions; the compressed layouts need two at least.
        layout: torch.sparse_coo (coalesced or not, with duplicates, unsorted, hybrid, without sparse dimensions), or
            torch.sparse_csr, _csc, _bsr or _bsc (int32 and int64 indices, blocks of any size, batches, dense ones).

    Raises:
        InvalidArgument: an argument makes no sense, or does not go with another one.
    """
    wanted_dtype = Argument(dtype, _dtype)
    wanted_shape = Argument(shape, arguments.shape)
    wanted_layout = Argument(layout, _layout)
    if wanted_shape.value is not None and wanted_layout.value in COMPRESSED and len(wanted_shape.value) < 2:
        raise InvalidArgument(f"shape={shape!r} does not go with layout={layout}: give rows and columns")
    return _sparse(wanted_dtype, wanted_shape, wanted_layout)


@st.composite
def _sparse(draw: st.DrawFn, dtype: Argument, shape: Argument, layout: Argument) -> Sparse:
    kind = layout.draw(draw, _LAYOUT)
    if kind == torch.sparse_coo:
        return _coo(draw, dtype.draw(draw, _DTYPES), shape.draw(draw, _COO_SHAPES))
    return _compressed(draw, kind, dtype.draw(draw, _DTYPES), shape)


def _coo(draw: st.DrawFn, dtype: torch.dtype, shape: tuple[int, ...]) -> Coo:
    # The same choices for all shapes; that all dimensions are sparse, as everybody has them, is every second.
    choice = draw(_DIMS) - 6
    sparse_dim = choice % len(shape) if shape and choice >= 0 else len(shape)
    places = draw(_places(math.prod(shape[:sparse_dim])))
    order = draw(_ORDER)
    if order == "coalesced" or not _addable(dtype):
        places = list(dict.fromkeys(places))
    if order != "drawn":
        places = sorted(places)
    places = [place for number, place in enumerate(places) if places[:number].count(place) < _TIMES]
    cells = tuple(cell(place, shape[:sparse_dim]) for place in places)
    data = _data(draw, dtype, adds=len(set(places)) < len(places))
    whole = sparse_dim == len(shape)
    return Coo(dtype, shape, cells, data, None if whole else sparse_dim, coalesced=order == "coalesced")


def _compressed(draw: st.DrawFn, layout: torch.layout, dtype: torch.dtype, wanted: Argument) -> Compressed:
    shape = wanted.draw(draw)
    if shape is None:
        batch, sides, rest = draw(_BATCH), tuple(_SIDE[index] for index in draw(_SIDES)), draw(_REST)
    else:
        assume(len(shape) >= 2)
        batch, sides, rest = shape[:-2], shape[-2:], ()
    blocked = layout in BLOCKED
    high, wide = (draw(_divisors(side)) if blocked else 1 for side in sides)
    rows, columns = sides[0] // high, sides[1] // wide
    room, matrices = rows * columns, math.prod(batch)
    places = list(dict.fromkeys(draw(_places(room))))
    # Another place for each, and as many, in each matrix of the batch.
    shift = draw(_SHIFT) if matrices > 1 and places else 0
    shifted = (sorted((place + shift * number) % room for place in places) for number in range(matrices))
    cells = tuple(tuple(divmod(place, columns) for place in matrix) for matrix in shifted)
    data = _data(draw, dtype, adds=False)
    return Compressed(layout, dtype, (*batch, *sides, *rest), cells, data, (high, wide), draw(_INDEX_DTYPE), len(rest))


@lru_cache(1024)
def _places(room: int) -> st.SearchStrategy[list[int]]:
    # Where there is no room, the same choices as where there is: else Hypothesis would think that the simpler case.
    return indices(max(room, 1), max_size=_CELLS).map(lambda places: places if room else [])


@lru_cache
def _divisors(side: int) -> st.SearchStrategy[int]:
    return st.sampled_from([number for number in range(1, max(side, 3) + 1) if side % number == 0])


def cell(place: int, shape: tuple[int, ...]) -> Cell:
    """The index of the element at `place`, where a tensor of this shape is contiguous."""
    found = []
    for side in reversed(shape):
        place, index = divmod(place, side)
        found.append(index)
    return tuple(reversed(found))


def _data(draw: st.DrawFn, dtype: torch.dtype, adds: bool) -> bytes:
    choice = _addable(dtype) if adds else words.palette(dtype)
    return b"".join([choice[byte % len(choice)] for byte in draw(_BYTES)])


@lru_cache
def _addable(dtype: torch.dtype) -> tuple[bytes, ...]:
    """Words of numbers that can be added; none of a dtype that has no zero, or no numbers."""
    found = [word for number in _ADDABLE[is_float(dtype)] if (word := _word(dtype, number))]
    return tuple(found) if _word(dtype, 0) else ()


def _word(dtype: torch.dtype, number: float) -> bytes:
    try:
        return words.word(dtype, number)
    except ValueError:
        return b""


def _dtype(value: Any) -> Any:
    arguments.one_of_type("dtype", torch.dtype)(value)
    if value in QUANTIZED:
        raise InvalidArgument(f"dtype={value} has no sparse tensors: give another one")
    return value


def _layout(value: Any) -> Any:
    if value not in LAYOUTS:
        raise InvalidArgument(f"layout={value!r} is not sparse: give one of {', '.join(map(str, LAYOUTS))}")
    return value
