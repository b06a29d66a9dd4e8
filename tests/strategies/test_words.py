"""The bits of elements: what a number means in each dtype, and back."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_tensorizer.strategies import dtypes, words
from pytest_tensorizer.strategies.dtypes import QUANTIZED, all_dtypes, is_float
from tests.strategies.draws import STEADY, label


@settings(STEADY, max_examples=400)
@given(dtypes(), st.binary(min_size=16, max_size=16))
def test_bits_come_back_from_code(dtype: torch.dtype, data: bytes) -> None:
    data = data[: dtype.itemsize * (16 // dtype.itemsize)]
    code = words.elements(dtype, data)
    assert words.words(dtype, code) == data
    assert words.words(dtype, eval(repr(code))) == data


@pytest.mark.parametrize("dtype", all_dtypes(), ids=label)
def test_the_palette_comes_back_from_code(dtype: torch.dtype) -> None:
    palette = words.palette(dtype)
    assert len(set(palette)) == len(palette) <= 256
    assert all(len(word) == dtype.itemsize for word in palette)
    assert palette[: len(words.readable(dtype))] == words.readable(dtype)
    for word in palette:
        (code,) = words.elements(dtype, word)
        assert words.word(dtype, eval(repr(code))) == word


@pytest.mark.parametrize("kind", [("f", torch.float32), ("d", torch.float64), ("e", torch.float16)], ids=label)
def test_numbers_are_what_struct_packs(kind: tuple[str, torch.dtype]) -> None:
    letter, dtype = kind
    draw = random.Random(1)
    for _ in range(300):
        data = draw.randbytes(dtype.itemsize)
        (number,) = struct.unpack(f"<{letter}", data)
        if number == number:
            assert words.word(dtype, number) == data
            assert words.elements(dtype, data) == [number if abs(number) != float("inf") else str(number)]
    for number in (0.0, -0.0, 1.5, float("inf"), float("-inf")):
        assert words.word(dtype, number) == struct.pack(f"<{letter}", number)
    assert words.word(dtype, 0.0) != words.word(dtype, -0.0) == words.word(dtype, eval("-0.0"))


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int64, torch.uint64], ids=label
)
def test_whole_numbers(dtype: torch.dtype) -> None:
    limits = torch.iinfo(dtype)
    for number in (limits.min, limits.max, 0, 1, 100):
        assert words.word(dtype, number) == number.to_bytes(dtype.itemsize, "little", signed=limits.min < 0)
    for number in (limits.min - 1, limits.max + 1):
        with pytest.raises(ValueError, match=str(number)):
            words.word(dtype, number)


@pytest.mark.parametrize(
    ("dtype", "element", "bits"),
    [
        (torch.bool, True, "01"),
        (torch.bool, "0x02", "02"),
        (torch.float32, "nan", "0000c07f"),
        (torch.float32, "-inf", "000080ff"),
        (torch.float32, "0x7fc00001", "0100c07f"),
        (torch.float32, "0x1", "01000000"),
        (torch.bfloat16, 1, "803f"),
        (torch.complex64, 1 + 2j, "0000803f00000040"),
        (torch.complex64, 1, "0000803f00000000"),
        (torch.float8_e4m3fn, 1.0, "38"),
        (torch.float8_e8m0fnu, 1.0, "7f"),
        (torch.bits16, "0x1234", "3412"),
        (torch.complex64, -1j, "00000080000080bf"),
    ],
    ids=label,
)
def test_words(dtype: torch.dtype, element: Any, bits: str) -> None:
    assert words.word(dtype, element) == bytes.fromhex(bits)


def test_there_is_no_negative_zero_where_a_dtype_has_none() -> None:
    for dtype in (torch.int8, torch.bool, torch.float8_e5m2fnuz):
        with pytest.raises(ValueError, match=r"-0.0 is not exactly an element"):
            words.word(dtype, -0.0)


def test_signs_are_flipped_in_the_bits() -> None:
    one, other = words.words(torch.float32, [1.0, 0.0, "nan"]), words.words(torch.float32, [-1.0, -0.0, "0xffc00000"])
    assert words.negative(torch.float32, one) == other
    assert words.negative(torch.float32, other) == one
    assert words.negative(torch.complex64, one[:8]) == other[:8]
    assert words.conjugate(torch.complex64, words.word(torch.complex64, 1 + 2j)) == words.word(torch.complex64, 1 - 2j)
    assert words.conjugate(torch.complex128, b"") == b""


@pytest.mark.parametrize(
    "dtype", [dtype for dtype in all_dtypes() if dtype.itemsize > 1 and is_float(dtype)], ids=label
)
def test_special_words_are_those_that_a_copy_by_numbers_loses(dtype: torch.dtype) -> None:
    number = {2: torch.float16, 4: torch.float32, 8: torch.float64}[dtype.itemsize // (2 if dtype.is_complex else 1)]
    number = dtype if dtype is torch.bfloat16 else number
    parts = torch.frombuffer(bytearray(b"".join(words.special(dtype))), dtype=number)
    tiny = torch.finfo(number).tiny
    for found in (parts.isnan(), parts == float("inf"), parts == -float("inf"), (parts == 0) & parts.signbit(),
                  (parts.abs() > 0) & (parts.abs() < tiny), parts == torch.finfo(number).max):  # fmt: skip
        assert found.any()
    assert len({bytes(parts[i : i + 1].view(torch.uint8).tolist()) for i in parts.isnan().nonzero()}) >= 8


def test_dtypes_with_numbers_have_readable_ones() -> None:
    for dtype in all_dtypes():
        readable = words.readable(dtype)
        assert len(readable) >= 2
        if dtype.itemsize > 1 and dtype not in QUANTIZED:
            assert not any(readable[0])
    assert words.elements(torch.float32, b"".join(words.readable(torch.float32)))[:3] == [0.0, 1.0, -1.0]
    assert words.elements(torch.int8, b"".join(words.readable(torch.int8)))[:3] == [0, 1, 2]
