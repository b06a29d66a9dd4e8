"""Prompt embeddings as clients send them, good ones and bad ones."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument
from torch import Tensor

from pytest_tensorizer.prompt_embeds.spec import FLOATING_DTYPES, EmbedsSpec
from pytest_tensorizer.strategies import arguments, words
from pytest_tensorizer.strategies import strides as lies
from pytest_tensorizer.strategies.arguments import Argument
from pytest_tensorizer.strategies.dense import Dense
from pytest_tensorizer.strategies.indices import indices
from pytest_tensorizer.strategies.payload.breaks import ANY, BREAKS, NOTHING, Break, Specification
from pytest_tensorizer.strategies.payload.payload import Payload
from pytest_tensorizer.strategies.sparse import BLOCKED, INDEX_DTYPES, Compressed, Coo, cell

# The same choices in the same order whatever the break and the dtypes are, so that nothing else moves when one of them
# gets simpler; and few of them: each costs time. No two are of equal strategies: Hypothesis tries what it drew for one
# in the place of others like it, and would spend most of its examples on that.
_WIDE = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_NARROW = tuple(dtype for dtype in FLOATING_DTYPES if dtype not in _WIDE)
_HIDDEN = st.sampled_from(range(1, 9))
_WANTED_DTYPE = st.sampled_from((*_WIDE, *_NARROW))
_DTYPES = (*_WIDE, *_NARROW, *_WIDE)
_DTYPE = st.sampled_from(_DTYPES)
_IS_BROKEN = st.booleans()
_LIMIT = st.sampled_from((None, None, None, None, 1, 3))  # times the bytes of the result
_ROWS = st.sampled_from((1, 2, 3, 4, 6))
_BYTES = st.binary(max_size=16)
_FILE = st.sampled_from(
    (("zip", "little"),) * 5 + (("legacy", "little"),) * 5 + (("zip", None), ("zip", "big"), ("zip", "big"))
    + (("deflated", "little"), ("deflated", "big"))
)  # fmt: skip
_LOCATION = st.sampled_from((None,) * 8 + ("cuda:0", "cuda", "cuda:3", "mps", "xpu:1", "hpu", "npu:0", "xla:0"))
_LAYOUTS = (
    (torch.strided,) * 6 + (torch.sparse_coo,) * 5
    + (torch.sparse_csr, torch.sparse_bsr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc, torch.sparse_bsc)
)  # fmt: skip
_LAYOUT = st.sampled_from(range(len(_LAYOUTS)))
_NUMBERS = st.sampled_from(range(16))
_KIND = st.sampled_from(range(3 * len(lies.KINDS)))
_VARIANT = st.sampled_from(range(lies.VARIANTS))
_SAVED_AS = st.sampled_from(("tensor",) * 4 + ("neg",) * 4 + ("requires-grad", "parameter", "frozen"))
_SPARSE_DIMS = st.sampled_from(range(12))
_ORDER = st.sampled_from(("coalesced", "sorted", "drawn", "drawn"))
_BLOCK = st.sampled_from(range(32))
_INDEX_DTYPE = st.sampled_from(INDEX_DTYPES)
_CELLS = 8
_TIMES = 3
_PLACES = 512


def payloads(
    spec: EmbedsSpec | st.SearchStrategy[EmbedsSpec] | None = None, *, verdict: str | None = None
) -> st.SearchStrategy[Payload]:
    """Prompt embeddings as a client may send them, with what a server has to make of each.

    Hand `payload.encoded` and `payload.spec` to the loader: it has to return `payload.expected`, or to refuse, as
    `payload.verdict` says ("either" leaves it to the loader, but what it returns has to be what is expected, if that is
    known). Nothing of it comes from a loader: it is made of what was drawn.

    About half of them are good: strided tensors (transposed, expanded, with an offset, …), Parameters, sparse COO
    tensors (with duplicates, unsorted, hybrid), CSR, CSC, BSR and BSC ones; of all floating-point dtypes; in both
    containers of `torch.save`, in both byte orders, saved on any device. The others have one thing wrong: see `BREAKS`.

    Args:
        spec: what the model asks for, or a strategy of it. None means anything small.
        verdict: "accept" or "reject" for payloads of that verdict only.

    Raises:
        InvalidArgument: an argument makes no sense, or `spec.max_bytes` has no room for a single row.
    """
    if verdict not in (None, "accept", "reject"):
        raise InvalidArgument(f"verdict={verdict!r} is unknown: give 'accept', 'reject', or None for any")
    return _payloads(Argument(spec, _spec), verdict)


def _spec(value: Any) -> EmbedsSpec:
    spec: EmbedsSpec = arguments.one_of_type("spec", EmbedsSpec)(value)
    if spec.max_bytes is not None and spec.nbytes(1) > spec.max_bytes:
        raise InvalidArgument(f"spec={spec!r} has no room for one row: give at least max_bytes={spec.nbytes(1)}")
    return spec


@lru_cache
def _breaks(verdict: str | None) -> st.SearchStrategy[str]:
    return st.sampled_from([name for name, each in BREAKS.items() if verdict in (None, each.verdict)])


@st.composite
def _payloads(draw: st.DrawFn, wanted: Argument, verdict: str | None) -> Payload:
    given = wanted.draw(draw)
    spec = EmbedsSpec(draw(_HIDDEN), draw(_WANTED_DTYPE)) if given is None else given
    broken = None
    if verdict != "accept":
        # Both choices even where one is in vain, so that the others keep their places.
        is_broken, name = verdict == "reject" or draw(_IS_BROKEN), draw(_breaks(verdict))
        broken = _possible(name, spec, own=given is None) if is_broken else None
    flaw = NOTHING if broken is None else BREAKS[broken]
    file, byteorder = draw(_FILE)
    if flaw.container == "zip" and file == "legacy":
        file = "zip"
    if verdict == "accept" and file == "deflated":
        file = "zip"
    location = draw(_LOCATION)
    layouts = _layouts_of(flaw.kinds)
    layout = layouts[draw(_LAYOUT) % len(layouts)]
    dtype = draw(_DTYPE)
    if verdict == "accept" and file == "legacy":
        dtype = _WIDE[_DTYPES.index(dtype) % len(_WIDE)]
    rows = draw(_ROWS)
    if given is None:
        limit = draw(_LIMIT)
        if broken == "larger-than-max-bytes" and limit is None:
            limit = 1
        if limit is not None:
            spec = replace(spec, max_bytes=limit * spec.nbytes(rows))
    elif spec.max_bytes is not None:
        rows = min(rows, spec.max_bytes // spec.nbytes(1))
    choice = draw(_NUMBERS)
    batch, rounded = choice % 4 == 3, choice >= 12  # the elements are numbers that only some dtypes have
    shape = (1, rows, spec.hidden_size) if batch else (rows, spec.hidden_size)
    tensor: Specification
    if layout is torch.strided:
        tensor = _dense(draw, dtype, shape, rounded)
    elif layout is torch.sparse_coo:
        tensor = _coo(draw, dtype, shape, rounded, flaw)
    else:
        tensor = _compressed(draw, layout, dtype, shape, rounded, flaw)
    container = "legacy" if file == "legacy" else "zip"
    return Payload(tensor, spec, container, location, file == "deflated", byteorder, broken)


def _possible(broken: str, spec: EmbedsSpec, own: bool) -> str:
    """Another break where `spec` cannot have this one."""
    if broken == "larger-than-max-bytes" and spec.max_bytes is None and not own:
        return "wrong-hidden-size"
    return "inf" if broken == "overflow" and spec.dtype is torch.float64 else broken


@lru_cache
def _layouts_of(kinds: tuple[type, ...]) -> tuple[torch.layout, ...]:
    return tuple(
        layout
        for layout in _LAYOUTS
        if (Dense if layout is torch.strided else Coo if layout is torch.sparse_coo else Compressed) in kinds
    )


def _dense(draw: st.DrawFn, dtype: torch.dtype, shape: tuple[int, ...], rounded: bool) -> Dense:
    kinds = lies.possible(shape)
    kind = kinds[draw(_KIND) % len(kinds)]
    strides, offset, size = None, 0, None
    if kind != "contiguous":
        variant = draw(_VARIANT) if kind in lies.VARIED else 0
        strides, offset, size = lies.lie(shape, kind, variant)
    saved_as = draw(_SAVED_AS)
    return Dense(
        dtype, shape, _data(draw, _elements(dtype, rounded)), strides, offset, size,
        neg=saved_as == "neg" and dtype in (torch.float32, torch.float64),
        requires_grad=saved_as in ("requires-grad", "parameter"),
        cls=torch.nn.Parameter if saved_as in ("parameter", "frozen") else Tensor,
    )  # fmt: skip


def _coo(draw: st.DrawFn, dtype: torch.dtype, shape: tuple[int, ...], rounded: bool, flaw: Break) -> Coo:
    # Every second has indices for all dimensions, as everybody has them.
    choice = draw(_SPARSE_DIMS)
    sparse_dim = len(shape) if choice < 6 else choice % len(shape)
    if flaw.kinds != ANY:
        sparse_dim = max(sparse_dim, 1)
    places = draw(_places(math.prod(shape[:sparse_dim]), flaw.entries))
    order = draw(_ORDER)
    if order == "coalesced":
        places = sorted(set(places))
    elif order == "sorted":
        places = sorted(places)
    places = [place for number, place in enumerate(places) if places[:number].count(place) < _TIMES]
    cells = tuple(cell(place, shape[:sparse_dim]) for place in places)
    adds = len(set(places)) < len(places)
    data = _data(draw, _addable(dtype) if adds else _elements(dtype, rounded, sparse=True))
    return Coo(
        dtype, shape, cells, data, None if sparse_dim == len(shape) else sparse_dim, coalesced=order == "coalesced"
    )


def _compressed(
    draw: st.DrawFn, layout: torch.layout, dtype: torch.dtype, shape: tuple[int, ...], rounded: bool, flaw: Break
) -> Compressed:
    choice = draw(_BLOCK)
    # Three dimensions are a batch of one matrix, or one row of vectors.
    dense_dim = int(len(shape) == 3 and choice >= 24)
    sides = shape[:2] if dense_dim else shape[-2:]
    block = (1, 1)
    if layout in BLOCKED:
        high, wide = (_divisors(side) for side in sides)
        block = high[choice % len(high)], wide[choice // 4 % len(wide)]
    columns = sides[1] // block[1]
    places = sorted(set(draw(_places(sides[0] // block[0] * columns, flaw.entries))))
    cells = tuple(divmod(place, columns) for place in places)
    data = _data(draw, _elements(dtype, rounded, sparse=True))
    return Compressed(layout, dtype, shape, (cells,), data, block, draw(_INDEX_DTYPE), dense_dim)


@lru_cache(1024)
def _places(room: int, entries: bool) -> st.SearchStrategy[list[int]]:
    """Places for entries among `room`, not always all different."""
    found = indices(min(room, _PLACES), min_size=int(entries), max_size=_CELLS)
    if room <= _PLACES:
        return found
    return found.map(lambda places: [place * (room - 1) // (_PLACES - 1) for place in places])


@lru_cache
def _divisors(side: int) -> tuple[int, ...]:
    """The sides up to 8 that a block can have, the smallest first."""
    return tuple(number for number in range(1, min(side, 8) + 1) if side % number == 0)


def _data(draw: st.DrawFn, choice: tuple[bytes, ...]) -> bytes:
    return b"".join([choice[byte % len(choice)] for byte in draw(_BYTES)])


_ROUNDED = (0.1, -0.3, 1 / 3, 3.14159265358979, -2.71828182845905, 0.0012345, 1.0625, 1e-7)


@lru_cache
def _elements(dtype: torch.dtype, rounded: bool, sparse: bool = False) -> tuple[bytes, ...]:
    """Words of numbers that every dtype has; and some that it has not, where `rounded`.

    Sparse tensors have no -0.0: whoever adds an entry to the zero that is there before gets 0.0, and may do so.
    """
    found = words.readable(dtype)
    if sparse:
        found = tuple(word for word in found if not any(word) or words.elements(dtype, word) != [0.0])
    return found + tuple(_nearest(dtype, number) for number in _ROUNDED) if rounded else found


@lru_cache
def _addable(dtype: torch.dtype) -> tuple[bytes, ...]:
    """Words of numbers that can be added up three times without rounding, in every dtype."""
    return tuple(words.word(dtype, number) for number in (0.0, 1.0, 2.0, -1.0, -2.0))


def _nearest(dtype: torch.dtype, number: float) -> bytes:
    return bytes(torch.tensor([number], dtype=dtype, device="cpu").view(torch.uint8).tolist())
