"""A good file as it is damaged: its bytes, its regions, and the places that are worth damaging."""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections import defaultdict
from functools import lru_cache

from pytest_tensorizer.strategies.structure import parse, unknown
from pytest_tensorizer.strategies.structure.edits import Edit
from pytest_tensorizer.strategies.structure.region import Region, Rewrite

_PAGE = 4096
# Its multiples, without what is before the point, lie evenly between 0 and 1, however many are taken.
_GOLDEN = (math.sqrt(5) - 1) / 2


class Source:
    """The file, read and parsed once.

    Attributes:
        file: what the user gave, as bytes or as a str.
        data: its bytes.
        regions: of its structure.
        places: offsets in rising order: of a small region each byte, of a large one its ends, what lies a power of two
            from its beginning or at the border of a page, and some between.
    """

    def __init__(self, file: bytes | str, data: bytes) -> None:
        self.file = file
        self.data = data
        try:
            self.regions, self.rewrites = parse(data)
        except ValueError:  # it looks like one of the formats only: others have a length before their JSON too
            self.regions, self.rewrites = unknown(data)
        self._starts = [region.start for region in self.regions]
        self._of_kind: dict[tuple[str, str], list[Region]] = defaultdict(list)
        self._rank: list[int] = []
        for region in self.regions:
            same = self._of_kind[region.kind, region.integer]
            self._rank.append(len(same))
            same.append(region)
        # What can be done to a region, or with a rewrite, is found when it is first wanted: most never are.
        self.fields: dict[int, list[Edit]] = {}
        self.listed: dict[int, tuple[Rewrite, ...]] = {}
        self.places = sorted({place for region in self.regions for place in _places(region)})

    @classmethod
    def of(cls, file: bytes | bytearray | str | os.PathLike[str]) -> Source:
        """Raises TypeError or OSError."""
        if isinstance(file, (bytes, bytearray)):
            return _parsed(bytes(file))
        path = os.fspath(file)
        if not isinstance(path, str):
            raise TypeError(f"{path!r} is no str")
        with open(path, "rb") as opened:
            return cls(path, opened.read())

    def index(self, offset: int) -> int:
        """Which region the byte at `offset` is in."""
        return bisect_right(self._starts, offset) - 1

    def at(self, offset: int) -> Region | None:
        """The region that the byte at `offset` is in; None behind the end."""
        return self.regions[self.index(offset)] if offset < len(self.data) else None

    def between(self, start: int, stop: int) -> tuple[Region, ...]:
        """The regions of which some byte is in `start` to `stop`."""
        return self.regions[self.index(start) : self.index(stop - 1) + 1] if start < len(self.data) else ()

    def where(self, offset: int) -> str:
        """The offset in words."""
        region = self.at(offset)
        if region is None:
            return f"at byte {offset}, the end"
        if region.start == offset:
            return f"at byte {offset}, the beginning of the {region.name}"
        return f"at byte {offset}, {offset - region.start} into the {region.stop - region.start} of the {region.name}"

    def alike(self, index: int) -> list[Region]:
        """The neighbours of a region among those of its kind: the next, then the one before."""
        region, rank = self.regions[index], self._rank[index]
        same = self._of_kind[region.kind, region.integer]
        return same[rank + 1 : rank + 2] + same[max(rank - 1, 0) : rank]


@lru_cache(maxsize=4)
def _parsed(data: bytes) -> Source:
    """The same file is damaged in a thousand ways, one after the other."""
    return Source(data, data)


def _places(region: Region) -> list[int]:
    start, stop, width = region.start, region.stop, region.stop - region.start
    if width <= 8:
        return list(range(start, stop))
    found = [start, stop - 2, stop - 1]
    found += [start + (1 << n) for n in range((width - 1).bit_length())]
    found += [start + int(width * (n * _GOLDEN % 1)) for n in range(1, 9)]
    first, last = -(-start // _PAGE) * _PAGE, (stop - 1) // _PAGE * _PAGE
    return [*found, *(page for page in (first, last) if start <= page < stop)]
