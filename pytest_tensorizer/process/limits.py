"""What can be asked of a clean process, how people write it, and how a limit is set."""

from __future__ import annotations

import os
import re
import sys
from fractions import Fraction
from pathlib import Path

_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
          "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}  # fmt: skip
_SIZE = re.compile(r"(\d+(?:\.\d+)?) *([A-Z]*)", re.IGNORECASE | re.ASCII)
_MOST_BYTES = (1 << 63) - 1  # what setrlimit takes
_MOST_SECONDS = 1_000_000  # epoll counts milliseconds in 32 bits


def parse_size(size: int | str) -> int:
    """Bytes from an int or from text such as "4GiB" or "500 MB". Raises ValueError for anything else."""
    value: int | None = None
    if isinstance(size, int) and not isinstance(size, bool):
        value = size
    elif isinstance(size, str) and (match := _SIZE.fullmatch(size.strip())) and match[2].upper() in _UNITS:
        value = int(Fraction(match[1]) * _UNITS[match[2].upper()])
    if value is None or not 0 < value <= _MOST_BYTES:
        raise ValueError(f'{size!r} is no memory size: write a positive number of bytes, or "4GiB", "512 MiB", "2GB"')
    return value


def parse_timeout(timeout: float | None) -> float | None:
    """Seconds, or None for no limit. Raises ValueError for what is neither."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout <= _MOST_SECONDS:
        raise ValueError(
            f"{timeout!r} is no timeout: write a positive number of seconds, up to {_MOST_SECONDS}, or None"
        )
    return float(timeout)


def zygotes_are_available() -> bool:
    """On Linux, since 5.3."""
    return hasattr(os, "pidfd_open")


METHODS = ("zygote", "spawn")


def parse_method(method: str | None) -> str:
    """ "zygote" or "spawn". None is the first, and it is always the second where there are no zygotes.

    Raises ValueError for another.
    """
    if method not in (None, *METHODS):
        raise ValueError(f"method={method!r} is not known: use {' or '.join(map(repr, METHODS))}")
    return (method or METHODS[0]) if zygotes_are_available() else METHODS[1]


def why_memory_is_unlimited() -> str:
    """Why a memory limit has no effect on this system, or "" where it has."""
    return "" if sys.platform == "linux" else f"memory_limit has no effect on {sys.platform}, only on Linux"


class MemoryLimit:
    """Within `with limit:`, this process may allocate `size` bytes more than it had at first; then come MemoryErrors.

    None is no limit. It is the data segment that is limited, anonymous memory; an address-space limit would also count
    what CUDA and mapped files merely reserve. What there is already does not count, so that a limit means the same
    whatever a zygote has imported.
    """

    def __init__(self, size: int | None) -> None:
        self.size = None if why_memory_is_unlimited() else size
        self._most: int | None = None

    def __enter__(self) -> None:
        if self.size is None:
            return
        import resource

        if self._most is None:
            self._most = self.size + _data_segment()
        self._before, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = self._most if hard == resource.RLIM_INFINITY else min(self._most, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))

    def __exit__(self, *_: object) -> None:
        if self.size is not None:
            import resource

            resource.setrlimit(resource.RLIMIT_DATA, (self._before, resource.getrlimit(resource.RLIMIT_DATA)[1]))

    def used(self) -> int:
        """The bytes that the process has allocated since it entered this for the first time, and has not given back."""
        return 0 if self.size is None or self._most is None else _data_segment() - (self._most - self.size)

    def explain(self, error: BaseException, what: str) -> str:
        """Why `error` may come from this limit: "the test may allocate 200 MiB"; or "" if it does not."""
        lacking = is_out_of_memory(error) and self.size is not None
        return f"{what} may allocate {format_size(self.size or 0)} (memory_limit)" if lacking else ""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that memory could not be had: torch's allocator raises RuntimeError."""
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error)


def _data_segment() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "VmData":
            return int(value.split()[0]) * 1024
    raise OSError("/proc/self/status does not tell VmData")


def format_size(size: int) -> str:
    """ "812 MiB", "4 KiB" """
    return f"{size / (1 << 20):,.0f} MiB" if size >= 1 << 20 else f"{size / (1 << 10):.3g} KiB"
