"""Every dtype of the installed torch, the plainest first."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from pytest_tensorizer.strategies import quiet  # noqa: F401 (it is run)

PACKED = {torch.quint4x2: 4, torch.quint2x4: 2}
"""The dtypes with several elements in a byte, and the bits that one takes: torch gives these no strides."""
QUANTIZED = (torch.qint8, torch.quint8, torch.qint32, *PACKED)

_PLAIN = (
    torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.uint8,
    torch.int8, torch.int16, torch.complex64, torch.complex128,
)  # fmt: skip


def all_dtypes() -> tuple[torch.dtype, ...]:
    """Every dtype of this torch: those of everyday first, and then the others by name."""
    found = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    return (*_PLAIN, *sorted(found.difference(_PLAIN), key=str))


def dtypes() -> st.SearchStrategy[torch.dtype]:
    """Any dtype that torch has, sub-byte, quantized and raw (`bits8`) ones included. Shrinks to float32."""
    return st.sampled_from(all_dtypes())


def is_float(dtype: torch.dtype) -> bool:
    """Whether its elements, or their real and imaginary parts, are floating-point numbers."""
    return dtype.is_floating_point or dtype.is_complex


def part_width(dtype: torch.dtype) -> int:
    """The bytes of an element, or of each of the two parts of a complex one."""
    return dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
