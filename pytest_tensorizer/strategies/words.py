"""The bits of elements: numbers as words (the bytes of one element, little-endian), and words as code.

No arithmetic of torch has a part in it but the cast of a number to a dtype: what a strategy draws are bits.
"""

from __future__ import annotations

import cmath
import math
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TypeAlias

import torch

from pytest_tensorizer.strategies.dtypes import QUANTIZED, is_float, part_width

Number: TypeAlias = "bool | int | float | complex"
Element: TypeAlias = "Number | str"
"""An element in code: a number, or a text: "nan", "inf", "-inf", or the bits as "0x7fc00001"."""


def word(dtype: torch.dtype, element: Element) -> bytes:
    """The word of `element`.

    Raises:
        ValueError: `dtype` has no such element, or torch cannot turn numbers into it and no bits were given.
        TypeError: `element` is neither a number nor a text.
    """
    if isinstance(element, str):
        if re.fullmatch(r"0x[0-9a-f]+", element):
            try:
                return int(element, 16).to_bytes(dtype.itemsize, "little")
            except OverflowError:
                raise ValueError(f"{element!r} has more bits than an element of {dtype}") from None
        if element not in ("nan", "inf", "-inf"):
            raise ValueError(f"{element!r} is no element: give a number, 'nan', 'inf', '-inf' or bits as '0x7f'")
        return word(dtype, float(element))
    if not isinstance(element, (int, float, complex)):
        raise TypeError(f"{element!r} is no element: give a number, 'nan', 'inf', '-inf' or bits as '0x7f'")
    return _cast(dtype, element, repr(element))


@lru_cache(4096)
def _cast(dtype: torch.dtype, number: Number, spelt: str) -> bytes:
    # `spelt` is there for the cache, which takes 0.0 for -0.0.
    if dtype in QUANTIZED:
        raise ValueError(f"{number!r} depends on scale and zero point as an element of {dtype}; give its bits")
    try:
        tensor = torch.tensor([number], dtype=dtype, device="cpu")
    except (NotImplementedError, RuntimeError, TypeError, OverflowError, ValueError) as error:
        raise ValueError(f"torch makes no element of {dtype} from {number!r} ({error}); give its bits") from None
    back = tensor.item()
    if not all(map(_is_same, _parts(back), _parts(number))):
        raise ValueError(f"{number!r} is not exactly an element of {dtype}: the nearest is {back!r}")
    return bytes(tensor.view(torch.uint8).tolist())


def _parts(number: Number) -> tuple[float, float]:
    return (number.real, number.imag) if isinstance(number, complex) else (number, 0)


def _is_same(one: float, other: float) -> bool:
    return (one == other and math.copysign(1, one) == math.copysign(1, other)) or (one != one and other != other)


def words(dtype: torch.dtype, elements: Iterable[Element]) -> bytes:
    """Those of several elements, one after the other. Raises what `word` raises."""
    return b"".join([word(dtype, element) for element in elements])


def elements(dtype: torch.dtype, data: bytes) -> list[Element]:
    """The code of each word in `data`: as a number where that makes just this word again, else as its bits."""
    width = dtype.itemsize
    return [_element(dtype, data[start : start + width]) for start in range(0, len(data), width)]


@lru_cache(4096)
def _element(dtype: torch.dtype, bits: bytes) -> Element:
    if dtype not in QUANTIZED:
        try:
            value = torch.tensor(list(bits), dtype=torch.uint8, device="cpu").view(dtype).item()
            text: Element = _spelt(value)
            if word(dtype, text) == bits:
                return text
        except (NotImplementedError, RuntimeError, ValueError):
            pass  # torch shows no elements of this dtype as numbers
    return f"0x{int.from_bytes(bits, 'little'):0{2 * len(bits)}x}"


def _spelt(value: Number) -> Element:
    if isinstance(value, complex):
        # What repr(complex) gives is an expression, which loses infinities and the signs of zeros: -1j is -(0+1j).
        signed = "-0.0" in map(repr, (value.real, value.imag)) or (value.real == 0 and value.imag < 0)
        if signed or not cmath.isfinite(value):
            raise ValueError(f"{value!r} is no number as code")
        return value
    return value if isinstance(value, (bool, int)) or math.isfinite(value) else str(value)


_INTEGERS = (0, 1, 2, 3, -1, -2, 5, 7, 10, -7, 100, 127, -128, 255)
_NUMBERS = (0.0, 1.0, -1.0, 2.0, 0.5, -0.5, 3.0, -2.0, 0.25, 4.0, 1.5, -1.5, 7.0, 10.0, -0.0)


@lru_cache
def readable(dtype: torch.dtype) -> tuple[bytes, ...]:
    """Small numbers that a person reads at a glance, the simplest first; 0 is the first if `dtype` has one."""
    if dtype is torch.bool:
        return (b"\0", b"\1")
    numbers: tuple[Number, ...] = _NUMBERS if is_float(dtype) else _INTEGERS
    if dtype.is_complex:
        numbers = (0j, 1 + 0j, 1j, -1 + 0j, -1j, 1 + 2j, 0.5 - 3j, 2 + 0j)
    found = []
    for number in numbers:
        try:
            found.append(word(dtype, number))
        except ValueError:  # there is no such element
            continue
    # A dtype without numbers has bits.
    return tuple(found) or tuple(bits.to_bytes(dtype.itemsize, "little") for bits in range(8))


@lru_cache
def special(dtype: torch.dtype) -> tuple[bytes, ...]:
    """Words that a copy by way of numbers would change, or that are at an end of a range.

    Quiet and signalling NaNs with payloads, infinities, subnormals, -0.0, the largest and the smallest; bytes of bools
    that are neither 0 nor 1. Of a dtype of one byte: every one.
    """
    width = part_width(dtype)
    if width == 1:
        return tuple(bytes([bits]) for bits in range(256))
    limits = (0, 1, 2, (1 << (8 * width)) - 1, 1 << (8 * width - 1), (1 << (8 * width - 1)) - 1)
    patterns = list(limits)
    if is_float(dtype):
        mantissa = {2: 7 if dtype is torch.bfloat16 else 10, 4: 23, 8: 52}[width]
        sign, one, quiet = 1 << (8 * width - 1), 1 << mantissa, 1 << (mantissa - 1)
        infinity = sign - one
        numbers = infinity, infinity - 1, one, one - 1, quiet, 1
        nans = infinity | quiet, infinity | 1, infinity | quiet | 5, sign - 1
        # The NaNs next to one another: Hypothesis gets from one to the simplest by the numbers in between.
        patterns = [0, sign]
        for magnitudes in (numbers, nans):
            patterns += [*magnitudes, *(sign | bits for bits in magnitudes)]
    parts = tuple(pattern.to_bytes(width, "little") for pattern in patterns)
    if not dtype.is_complex:
        return parts
    zero, plain = parts[0], readable(dtype)[1][:width]
    return (*(p + zero for p in parts), *(zero + p for p in parts), *(p + plain for p in parts), *map(_twice, parts))


def _twice(part: bytes) -> bytes:
    return part + part


@lru_cache
def palette(dtype: torch.dtype) -> tuple[bytes, ...]:
    """The readable words, and then the special ones: what one byte chooses from, since they are at most 256."""
    found = tuple(dict.fromkeys((*readable(dtype), *special(dtype))))
    assert len(found) <= 256, f"{dtype} has {len(found)}"
    return found


def negative(dtype: torch.dtype, data: bytes) -> bytes:
    """The words with the sign of each part flipped, as a negative view shows them: of floating-point dtypes."""
    return _flip_signs(data, part_width(dtype), part_width(dtype))


def conjugate(dtype: torch.dtype, data: bytes) -> bytes:
    """The words with the sign of each imaginary part flipped, as a conjugate view shows them."""
    return _flip_signs(data, dtype.itemsize, dtype.itemsize)


def _flip_signs(data: bytes, step: int, first: int) -> bytes:
    flipped = bytearray(data)
    for index in range(first - 1, len(flipped), step):
        flipped[index] ^= 0x80
    return bytes(flipped)
