"""Deterministic tensors for every dtype, shape and memory layout: what the suite's matrices are made of."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

SHAPES: dict[str, tuple[int, ...]] = {"0d": (), "1d": (7,), "2d": (3, 5), "empty": (0, 3)}
LAYOUTS = ("contiguous", "transposed", "strided", "offset", "expanded")

_PACKED = ("quint4x2", "quint2x4")
_QUANTIZED = ("qint8", "quint8", "qint32", *_PACKED)


def dtypes() -> dict[str, torch.dtype]:
    """Name -> dtype, for every dtype of the installed torch, in the order of their names."""
    found = {d for d in vars(torch).values() if isinstance(d, torch.dtype)}
    return {str(d).removeprefix("torch."): d for d in sorted(found, key=str)}


def cases() -> list[tuple[str, str, str]]:
    """(dtype, shape, layout) of the whole matrix, without the combinations that there are not."""
    every = itertools.product(dtypes(), SHAPES, LAYOUTS)
    return [case for case in every if exists(*case)]


def exists(dtype: str, shape: str, layout: str) -> bool:
    """Whether torch has such a tensor at all: a scalar cannot be transposed, nor can every dtype be copied."""
    dims = len(SHAPES[shape])
    if layout == "transposed" and dims < 2:
        return False
    if layout in ("strided", "expanded") and dims < 1:
        return False
    # A slice of packed elements points past the end of its storage: torch takes the offset for one in bytes.
    if layout == "offset" and dtype in _PACKED:
        return False
    # torch cannot make a non-contiguous tensor of these contiguous ("copy_kernel" not implemented), so nobody can
    # write it in order.
    return layout in ("contiguous", "offset") or _can_copy(dtype)


def _can_copy(dtype: str) -> bool:
    try:
        _elements(dtypes()[dtype], 4).reshape(2, 2).t().contiguous()
    except (NotImplementedError, RuntimeError):
        return False
    return True


def make(dtype: str, shape: str, layout: str) -> Tensor:
    """The sample of this case. Floating-point ones hold NaNs with payloads, infinities, subnormals and -0.0."""
    size = SHAPES[shape]
    torch_dtype = dtypes()[dtype]
    count = torch.Size(size).numel()
    return _MAKERS[layout](torch_dtype, size, count)


def _contiguous(dtype: torch.dtype, size: tuple[int, ...], count: int) -> Tensor:
    return _elements(dtype, count).reshape(size)


def _transposed(dtype: torch.dtype, size: tuple[int, ...], count: int) -> Tensor:
    return _elements(dtype, count).reshape(size[::-1]).permute(*range(len(size) - 1, -1, -1))


def _strided(dtype: torch.dtype, size: tuple[int, ...], count: int) -> Tensor:
    """Every second element of each row of a larger tensor."""
    return _elements(dtype, count * 2).reshape(*size[:-1], size[-1] * 2)[..., ::2]


def _offset(dtype: torch.dtype, size: tuple[int, ...], count: int) -> Tensor:
    """Contiguous, but beginning inside a larger storage."""
    return _elements(dtype, count + 3)[3:].reshape(size)


def _expanded(dtype: torch.dtype, size: tuple[int, ...], count: int) -> Tensor:
    """One row in memory, for all of them."""
    row = torch.Size(size[1:]).numel() if len(size) > 1 else 1
    return _elements(dtype, row).reshape(1, *size[1:]).expand(size)


_MAKERS: dict[str, Callable[[torch.dtype, tuple[int, ...], int], Tensor]] = {
    "contiguous": _contiguous,
    "transposed": _transposed,
    "strided": _strided,
    "offset": _offset,
    "expanded": _expanded,
}

# Bit patterns with which an arithmetic copy would betray itself, by the width of a float in bytes.
_SPECIAL = {
    2: [0x7FFF, 0x8000, 0x7C01, 0xFF81, 0x0001, 0x7C00, 0xFF80],
    4: [0x7FC0BEEF, 0x80000000, 0x7F800001, 0xFFFFFFFF, 0x00000001, 0x7F800000, 0xFF800000],
    8: [0x7FF8_0000_DEAD_BEEF, 1 << 63, 0x7FF0_0000_0000_0001, (1 << 64) - 1, 1, 0x7FF0 << 48, 0xFFF0 << 48],
}


def _elements(dtype: torch.dtype, count: int) -> Tensor:
    """`count` elements of `dtype` as a 1-d tensor with a storage of its own; the bits depend on both alone."""
    name = str(dtype).removeprefix("torch.")
    if name in _QUANTIZED:
        return _quantized(dtype, name, count)
    if dtype is torch.bool:
        return torch.arange(count) % 3 == 1
    generator = torch.Generator().manual_seed(len(name) * 1000 + count)
    data = torch.randint(0, 256, (count * dtype.itemsize,), dtype=torch.uint8, generator=generator)
    width = dtype.itemsize // (2 if dtype.is_complex else 1)
    if (dtype.is_floating_point or dtype.is_complex) and width in _SPECIAL:
        special = b"".join(bits.to_bytes(width, "little") for bits in _SPECIAL[width])[: data.numel()]
        data[: len(special)] = torch.tensor(list(special), dtype=torch.uint8)
    return data.view(dtype) if count else torch.empty(0, dtype=dtype)


def _quantized(dtype: torch.dtype, name: str, count: int) -> Tensor:
    values = torch.arange(count, dtype=torch.float32) % 3
    if name in _PACKED:
        scales, zeros = torch.ones(1), torch.zeros(1)
        return torch.quantize_per_channel(values[None], scales, zeros, 0, dtype)[0]
    return torch.quantize_per_tensor(values, 0.5, 1, dtype)
