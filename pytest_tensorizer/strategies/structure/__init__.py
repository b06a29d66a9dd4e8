"""What the bytes of a checkpoint are: each parser cuts a well-formed file into named regions.

Nothing here imports torch or the serializers: what a file is made of is read from its bytes alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from pytest_tensorizer.strategies.structure import (
    safetensors_file,
    safetensors_rewrites,
    tensors_file,
    torch_archive,
    torch_legacy,
)
from pytest_tensorizer.strategies.structure.region import Region, Rewrite

__all__ = ["Region", "Rewrite", "Structure", "parse", "regions"]


class Structure(NamedTuple):
    """The regions of a file, and for each of its tensors or members a function that lists the rewrites of it."""

    regions: tuple[Region, ...]
    rewrites: tuple[Callable[[], tuple[Rewrite, ...]], ...] = ()


def regions(data: bytes) -> tuple[Region, ...]:
    """The regions of a file, in their order, without gaps or overlaps: each byte is in exactly one.

    The format is told by the content: tensorizer's `.tensors`, safetensors, a zip archive as of `torch.save`, or the
    container that `torch.save` wrote before. Any other file is one region "file"; an empty one has none.

    Raises ValueError with the offset and the reason where the file begins like one of these and then is not well
    formed.
    """
    return parse(data).regions


def parse(data: bytes) -> Structure:
    """The regions, as `regions` has them, with the rewrites that the format allows."""
    if data.startswith(tensors_file.MAGIC):
        return Structure(tensors_file.regions(data))
    if data.startswith(torch_archive.MAGIC):
        found, members = torch_archive.parse(data)
        return Structure(found, tuple(partial(torch_archive.rewrites, data, m) for m in members if m.content))
    if torch_legacy.recognised(data):
        return Structure(torch_legacy.regions(data))
    if safetensors_file.recognised(data):
        found, entries = safetensors_file.parse(data)
        rewrites = (partial(safetensors_rewrites.rewrites, data, entries, number) for number in range(len(entries)))
        return Structure(found, tuple(rewrites))
    return unknown(data)


def unknown(data: bytes) -> Structure:
    """A file of which nothing is known but its bytes."""
    return Structure((Region(0, len(data), "the file", "file"),) if data else ())
