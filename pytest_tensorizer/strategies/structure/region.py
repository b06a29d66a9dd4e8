"""A part of a file with a name, and the reader with which the parsers cut a file into such parts."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Region(NamedTuple):
    """The bytes `start` to `stop` (exclusive) of a file.

    `name` tells a person what they are ("data length in the header of tensor 'weight'"); `kind` is a short word for
    all regions of that sort: "magic", "version", "flags", "size", "count", "offset", "name", "type", "dtype", "shape",
    "hash", "padding", "data", "json", "text", "pickle", "crypt" or "file". An integer has its byte order, or "decimal"
    where it is written in digits, as `integer`; its width in bytes is `stop - start`.
    """

    start: int
    stop: int
    name: str
    kind: str
    integer: Literal["little", "big", "decimal", ""] = ""

    def value(self, data: bytes) -> int:
        """The integer that stands here in `data`, taken as unsigned."""
        found = data[self.start : self.stop]
        if self.integer == "little" or self.integer == "big":
            return int.from_bytes(found, self.integer)
        return int(found)


class Rewrite(NamedTuple):
    """A change that the format's own bookkeeping does not notice.

    `parts` are `(start, stop, bytes in their place)`, in bytes of the file as it was. The integer in the region
    `length`, if there is one, counts bytes among which these are, and has to grow with them.
    """

    parts: tuple[tuple[int, int, bytes], ...]
    length: Region | None = None


class Reader:
    """Reads a file from its beginning, and notes a region for everything it reads.

    Errors are ValueErrors that name the format, the offset in bytes and what was expected there.
    """

    def __init__(self, data: bytes, file: str) -> None:
        self.data = data
        self.file = file
        self.at = 0
        self.regions: list[Region] = []

    def error(self, reason: str, at: int | None = None) -> ValueError:
        return ValueError(f"no well-formed {self.file}: at offset {self.at if at is None else at}: {reason}")

    def take(self, size: int, name: str, kind: str) -> bytes:
        """The next `size` bytes. Nothing is noted for none."""
        self._note(size, Region(self.at, self.at + size, name, kind))
        return self.data[self.at - size : self.at]

    def number(self, width: int, name: str, kind: str, byteorder: Literal["little", "big"] = "little") -> int:
        """The next `width` bytes as an unsigned integer."""
        self._note(width, Region(self.at, self.at + width, name, kind, byteorder))
        return int.from_bytes(self.data[self.at - width : self.at], byteorder)

    def upto(self, offset: int, name: str, kind: str) -> bytes:
        """Everything from here to `offset`, which must not lie behind."""
        if offset < self.at:
            raise self.error(f"{name} would end at {offset}, before its beginning")
        return self.take(offset - self.at, name, kind)

    def expect(self, magic: bytes, name: str) -> None:
        if self.data[self.at : self.at + len(magic)] != magic:
            raise self.error(f"{name} should be {magic!r}, is {self.data[self.at : self.at + len(magic)]!r}")
        self.take(len(magic), name, "magic")

    def _note(self, size: int, region: Region) -> None:
        if region.stop > len(self.data):
            raise self.error(f"{region.name} takes {size} bytes, {len(self.data) - self.at} are left")
        if size:
            self.regions.append(region)
        self.at = region.stop
