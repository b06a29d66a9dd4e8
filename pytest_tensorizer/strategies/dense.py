"""Strided tensors as data: a specification that makes the tensor, and is code."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pytest_tensorizer.strategies import words
from pytest_tensorizer.strategies.code import Code
from pytest_tensorizer.strategies.dtypes import PACKED, QUANTIZED
from pytest_tensorizer.strategies.strides import contiguous_strides, extent
from pytest_tensorizer.strategies.words import Element


class Subclass(Tensor):
    """A subclass of Tensor that adds nothing: what a serializer meets where a library has types of its own."""


@dataclass(frozen=True, repr=False)
class Dense(Code):
    """A strided tensor on the CPU, bit for bit. `build` makes it; the repr is code that makes the specification.

    Attributes:
        dtype: any dtype of torch.
        shape: the sides.
        data: the elements of the *storage*, in the order in which they lie; where they are fewer than `size`, they
            begin again, and without any, all bits are zero. Numbers, "nan", "inf", "-inf", or bits as "0x7fc00001"; or
            the bytes of all.
        strides: in elements; None means contiguous.
        offset: where the tensor begins in its storage, in elements.
        size: the elements of the storage; None means as many as the tensor needs.
        conj, neg: a view that shows the conjugates, or the negatives, of what lies in memory.
        requires_grad: as of the tensor.
        cls: Tensor, nn.Parameter, nn.Buffer, or a subclass of Tensor.

    A quantized tensor has the scale 0.5 and the zero point 1.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    data: Sequence[Element] | bytes = b""
    strides: tuple[int, ...] | None = None
    offset: int = 0
    size: int | None = None
    conj: bool = False
    neg: bool = False
    requires_grad: bool = False
    cls: type[Tensor] = Tensor

    def __post_init__(self) -> None:
        data = self.data if isinstance(self.data, bytes) else words.words(self.dtype, self.data)
        # Without what has no effect, and which the repr would leave out, so that equal tensors are equal.
        data = data[: self.lie[1] * self.dtype.itemsize]
        object.__setattr__(self, "data", data if any(data) else b"")

    @cached_property
    def lie(self) -> tuple[tuple[int, ...], int]:
        """The strides, and the elements of the storage."""
        strides = contiguous_strides(self.shape) if self.strides is None else self.strides
        return strides, self.offset + extent(self.shape, strides) if self.size is None else self.size

    def storage(self) -> bytes:
        """What lies in memory."""
        return _repeated(self._pattern, self.lie[1] * self.dtype.itemsize)

    @property
    def _pattern(self) -> bytes:
        assert isinstance(self.data, bytes)
        return self.data

    def elements(self) -> bytes:
        """The words of all elements in row-major order, as a reader of the tensor sees them: the oracle of the bits."""
        strides, _ = self.lie
        width, memory = self.dtype.itemsize, self.storage()
        if self.strides is None:
            start = self.offset * width
            shown = memory[start : start + math.prod(self.shape) * width]
        else:
            starts = [self.offset * width]
            for side, stride in zip(self.shape, strides, strict=True):
                starts = [start + index * stride * width for start in starts for index in range(side)]
            shown = b"".join([memory[start : start + width] for start in starts])
        if self.conj:
            shown = words.conjugate(self.dtype, shown)
        return words.negative(self.dtype, shown) if self.neg else shown

    def dense(self) -> Tensor:
        """The oracle: a contiguous tensor of the same elements, made of the data and not by torch's copying."""
        plain = Dense(self.dtype, self.shape, self._pattern if self.dtype in PACKED else self.elements())
        return plain.build()

    def build(self) -> Tensor:
        """The tensor, with a storage of its own."""
        tensor = self._quantized() if self.dtype in QUANTIZED else self._strided()
        if self.conj:
            tensor = torch._conj(tensor)
        if self.neg:
            tensor = torch._neg_view(tensor)
        if self.cls is torch.nn.Parameter:
            return torch.nn.Parameter(tensor, requires_grad=self.requires_grad)
        if self.cls is torch.nn.Buffer:
            tensor = torch.nn.Buffer(tensor)
        elif self.cls is not Tensor:
            tensor = tensor.as_subclass(self.cls)
        return tensor.requires_grad_() if self.requires_grad else tensor

    def _strided(self) -> Tensor:
        strides, _ = self.lie
        flat = tensor_of(self.storage(), self.dtype)
        if self.strides is None and not self.offset and self.size is None:
            return flat.view(self.shape)
        return flat.as_strided(self.shape, strides, self.offset)

    def _quantized(self) -> Tensor:
        _, size = self.lie
        make: Any = torch._empty_affine_quantized
        whole: Tensor = make(
            self.shape if self.strides is None else (size,), scale=0.5, zero_point=1, dtype=self.dtype, device="cpu"
        )
        copy_to(whole, _repeated(self._pattern, whole.untyped_storage().nbytes()))
        return whole if self.strides is None else whole.as_strided(self.shape, self.strides, self.offset)

    @property
    def traits(self) -> frozenset[str]:
        """What is particular about it, in words: "conj", "empty", "dtype:bool", …"""
        flags = {
            "conj": self.conj, "neg": self.neg, "requires-grad": self.requires_grad, "empty": 0 in self.shape,
            "scalar": not self.shape, "noncontiguous": self.strides not in (None, contiguous_strides(self.shape)),
            "offset": self.offset > 0, "larger-storage": self.size is not None, "subclass": self.cls is not Tensor,
            "many-dims": len(self.shape) > 5,
            "odd-bool": self.dtype is torch.bool and any(byte > 1 for byte in self._pattern),
        }  # fmt: skip
        return frozenset(
            {f"dtype:{str(self.dtype).removeprefix('torch.')}", *(name for name, is_so in flags.items() if is_so)}
        )

    def __repr__(self) -> str:
        parts = [repr(self.dtype), repr(self.shape)]
        if self.data:
            parts.append(repr(words.elements(self.dtype, self._pattern)))
        for name, default in _DEFAULTS.items():
            value = getattr(self, name)
            if value != default:
                parts.append(f"{name}={_named(value)}")
        return f"Dense({', '.join(parts)})"


_DEFAULTS: dict[str, Any] = {
    "strides": None, "offset": 0, "size": None, "conj": False, "neg": False, "requires_grad": False, "cls": Tensor,
}  # fmt: skip


def _named(value: object) -> str:
    if not isinstance(value, type):
        return repr(value)
    return {"Parameter": "torch.nn.Parameter", "Buffer": "torch.nn.Buffer"}.get(value.__name__, value.__name__)


def _repeated(pattern: bytes, length: int) -> bytes:
    return (pattern * (length // len(pattern) + 1))[:length] if pattern else bytes(length)


def tensor_of(data: bytes, dtype: torch.dtype) -> Tensor:
    """A one-dimensional tensor of these words, with a storage of its own, which torch has allocated."""
    tensor = torch.empty(len(data) // dtype.itemsize, dtype=dtype, device="cpu")
    copy_to(tensor, data)
    return tensor


def copy_to(tensor: Tensor, data: bytes) -> None:
    """Copy to the storage, without torch's threads: once it has used them, a forked child waits for them for ever."""
    if data:
        ctypes.memmove(tensor.untyped_storage().data_ptr(), data, len(data))
