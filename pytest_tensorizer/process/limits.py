"""Limits of a clean process: how people write them, and how they are set."""

from __future__ import annotations

import re

_UNITS = {"": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
          "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}  # fmt: skip


def parse_size(size: int | str) -> int:
    """Bytes from an int or from text such as "4GiB" or "500 MB". Raises ValueError for anything else."""
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?i?B)?", size.strip(), re.IGNORECASE) if isinstance(size, str) else None
    if match is None or (match[2] or "").upper() not in {*_UNITS, "B"} or float(match[1]) <= 0:
        raise ValueError(f'{size!r} is no memory size: write a positive number of bytes, or "4GiB", "512 MiB", "2GB"')
    return int(float(match[1]) * _UNITS.get((match[2] or "").upper(), 1))


def parse_timeout(timeout: float | None) -> float | None:
    """Seconds, or None for no limit. Raises ValueError for what is neither."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
        raise ValueError(f"{timeout!r} is no timeout: write a positive number of seconds, or None")
    return float(timeout)


def limit_memory(size: int) -> None:
    """Let this process allocate no more than `size` bytes of its own: beyond it Python raises MemoryError.

    It is the data segment that is limited, anonymous memory; an address-space limit would also count what CUDA
    and mapped files merely reserve.
    """
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (size if hard == resource.RLIM_INFINITY else min(size, hard), hard))


def format_size(size: int) -> str:
    """ "812 MiB" """
    return f"{size / (1 << 20):,.0f} MiB"
