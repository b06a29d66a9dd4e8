from __future__ import annotations

import mmap

import pytest

from pytest_tensorizer.process import run_isolated
from pytest_tensorizer.process.limits import format_size, parse_size, parse_timeout


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (1, 1),
        (4096, 4096),
        ("4096", 4096),
        ("17 B", 17),
        ("1KiB", 1024),
        ("512 MiB", 512 << 20),
        ("4GiB", 4 << 30),
        ("4gib", 4 << 30),
        ("1.5GiB", 3 << 29),
        ("0.1GB", 100_000_000),
        ("2TiB", 2 << 40),
        ("3 kb", 3000),
        (" 2GB ", 2_000_000_000),
        ("9007199254740993", 9007199254740993),  # a float would lose one
        ((1 << 63) - 1, (1 << 63) - 1),
    ],
)
def test_sizes(text: int | str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    [0, -1, True, 1.5, None, "", "0", "0GiB", "0.1", "-1GiB", "4G", "4iB", "GiB", "1e9", "4 GiB each", "٤GiB", "nan",
     1 << 63, "9" * 400, "9999999TiB", b"4GiB"],
)  # fmt: skip
def test_what_is_no_size(text: int | str) -> None:
    with pytest.raises(ValueError, match="is no memory size: write a positive number of bytes, or"):
        parse_size(text)


@pytest.mark.parametrize("timeout", [None, 1, 0.5, 1_000_000])
def test_timeouts(timeout: float | None) -> None:
    assert parse_timeout(timeout) == timeout


@pytest.mark.parametrize("timeout", [0, -1, True, "60", float("nan"), float("inf"), 1_000_001, [1]])
def test_what_is_no_timeout(timeout: float) -> None:
    with pytest.raises(ValueError, match="is no timeout: write a positive number of seconds"):
        parse_timeout(timeout)


def test_format() -> None:
    assert [format_size(size) for size in (0, 1000, 4096, 1 << 20, 812 << 20, 3 << 30)] == [
        "0 KiB",
        "0.977 KiB",
        "4 KiB",
        "1 MiB",
        "812 MiB",
        "3,072 MiB",
    ]


def allocate(size: int) -> int:
    return len(bytearray(size))


def map_file(path: str, size: int) -> int:
    with open(path, "w+b") as file:
        file.truncate(size)
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as mapped:
            return len(mapped)


def test_beyond_the_limit_is_a_memory_error() -> None:
    assert run_isolated(allocate, 64 << 20, memory_limit="256MiB") == 64 << 20
    with pytest.raises(MemoryError):
        run_isolated(allocate, 512 << 20, memory_limit="256MiB")
    assert run_isolated(allocate, 512 << 20) == 512 << 20


def test_mapped_files_do_not_count(tmp_path: object) -> None:
    assert run_isolated(map_file, f"{tmp_path}/sparse", 1 << 30, memory_limit="256MiB") == 1 << 30
