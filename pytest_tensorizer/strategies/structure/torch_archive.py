"""The layout of the zip archives of `torch.save`: members that are stored as they are, and a directory at the end."""

from __future__ import annotations

import zlib
from typing import NamedTuple

from pytest_tensorizer.strategies.structure.region import Reader, Region, Rewrite

MAGIC = b"PK\x03\x04"
_DIRECTORY, _END, _END_64, _LOCATOR, _DESCRIPTOR = (b"PK" + s for s in (b"\1\2", b"\5\6", b"\6\6", b"\6\7", b"\7\x08"))

_COMMON = (
    (2, "flags", "flags"),
    (2, "compression", "type"),
    (4, "time", "text"),
    (4, "CRC32", "hash"),
    (4, "compressed size", "size"),
    (4, "size", "size"),
    (2, "name length", "size"),
    (2, "extra length", "size"),
)
_HEADER = ((2, "version needed", "version"), *_COMMON)
_ENTRY = (
    (2, "version made by", "version"),
    *_HEADER,
    (2, "comment length", "size"),
    (2, "disk", "count"),
    (2, "internal attributes", "flags"),
    (4, "external attributes", "flags"),
    (4, "offset", "offset"),
)
_RECORD = (
    (2, "disk", "count"),
    (2, "disk of the directory", "count"),
    (2, "number of members on this disk", "count"),
    (2, "number of members", "count"),
    (4, "directory size", "size"),
    (4, "directory offset", "offset"),
    (2, "comment length", "size"),
)
_RECORD_64 = (
    (8, "length", "size"),
    (2, "version made by", "version"),
    (2, "version needed", "version"),
    (4, "disk", "count"),
    (4, "disk of the directory", "count"),
    (8, "number of members on this disk", "count"),
    (8, "number of members", "count"),
    (8, "directory size", "size"),
    (8, "directory offset", "offset"),
)
_LOCATOR_FIELDS = (
    (4, "disk", "count"),
    (8, "offset of the zip64 end record", "offset"),
    (4, "number of disks", "count"),
)


class Member(NamedTuple):
    """A file in the archive. `sums` are its CRC32s, wherever one is recorded, and `content` its bytes, if any."""

    name: str
    offset: int
    size: int
    sums: tuple[Region, ...]
    content: Region | None = None


def regions(data: bytes) -> tuple[Region, ...]:
    """The regions of a zip archive. Raises ValueError with an offset where it is not well formed."""
    return parse(data)[0]


def parse(data: bytes) -> tuple[tuple[Region, ...], tuple[Member, ...]]:
    """The regions, and the members in the order of their content."""
    start, found, tail = _directory(data)
    reader = Reader(data, "zip archive")
    stops = [*(member.offset for member in found[1:]), start]
    members = []
    for member, stop in zip(found, stops, strict=True):
        reader.upto(member.offset, f"gap before {member.name}", "padding")
        members.append(_local(reader, member, stop))
    reader.upto(start, "gap before the directory", "padding")
    return (*reader.regions, *tail), tuple(members)


def _directory(data: bytes) -> tuple[int, list[Member], list[Region]]:
    """Where the directory begins, the members by offset, and the regions from there to the end of the file."""
    reader = Reader(data, "zip archive")
    end = data.rfind(_END)
    if end < 0 or end + 22 > len(data):
        raise reader.error("there is no end of the directory", len(data))
    count, start = (
        int.from_bytes(data[end + 10 : end + 12], "little"),
        int.from_bytes(data[end + 16 : end + 20], "little"),
    )
    if data[max(end - 20, 0) : end][:4] == _LOCATOR:
        record = int.from_bytes(data[end - 12 : end - 4], "little")
        count = int.from_bytes(data[record + 32 : record + 40], "little")
        start = int.from_bytes(data[record + 48 : record + 56], "little")
    reader.at = start
    members: list[Member] = []
    while len(members) < count:
        members.append(_entry(reader))
    if data[reader.at : reader.at + 4] == _END_64:
        _fields(reader, _END_64, _RECORD_64, "of the zip64 end record")
        _fields(reader, _LOCATOR, _LOCATOR_FIELDS, "of the zip64 locator")
    found = _fields(reader, _END, _RECORD, "of the end record")
    reader.take(found["comment length"].value(data), "comment of the archive", "text")
    reader.upto(len(data), "bytes behind the archive", "file")
    return start, sorted(members, key=lambda member: member.offset), reader.regions


def _fields(reader: Reader, magic: bytes, fields: tuple[tuple[int, str, str], ...], of: str) -> dict[str, Region]:
    reader.expect(magic, f"signature {of}")
    for width, name, kind in fields:
        reader.number(width, f"{name} {of}", kind)
    return {name: region for (_, name, _), region in zip(fields, reader.regions[-len(fields) :], strict=True)}


def _entry(reader: Reader) -> Member:
    begin, data = reader.at, reader.data
    size = int.from_bytes(data[begin + 28 : begin + 30], "little")
    name = repr(data[begin + 46 : begin + 46 + size].decode("utf-8", "backslashreplace"))
    of = f"of {name} in the directory"
    found = _fields(reader, _DIRECTORY, _ENTRY, of)
    reader.take(size, f"name {of}", "name")
    extra = reader.take(found["extra length"].value(data), f"extra field {of}", "padding")
    reader.take(found["comment length"].value(data), f"comment {of}", "text")
    values = {field: found[field].value(data) for field in ("size", "compressed size", "offset")}
    # What does not fit into 32 bits stands in the extra field, in this order.
    for index, field in enumerate(field for field, value in list(values.items()) if value == 0xFFFFFFFF):
        values[field] = int.from_bytes(extra[4 + 8 * index : 12 + 8 * index], "little")
    return Member(name, values["offset"], values["compressed size"], (found["CRC32"],))


def _local(reader: Reader, member: Member, stop: int) -> Member:
    of = f"in the header of {member.name}"
    header = _fields(reader, MAGIC, _HEADER, of)
    reader.take(header["name length"].value(reader.data), f"name {of}", "name")
    reader.take(header["extra length"].value(reader.data), f"extra field {of}", "padding")
    path = member.name.strip("'\"")
    kind = "pickle" if path.endswith(".pkl") else "data" if "/data/" in path else "text"
    reader.take(member.size, f"content of {member.name}", kind)
    content = reader.regions[-1] if member.size else None
    sums = member.sums
    # With a descriptor behind the content, the CRC32 in the header is zero and nobody reads it.
    if header["CRC32"].value(reader.data):
        sums += (header["CRC32"],)
    left = stop - reader.at
    if left in (16, 24) and reader.data[reader.at : reader.at + 4] == _DESCRIPTOR:
        width = (left - 8) // 2
        sizes = ((width, "compressed size", "size"), (width, "size", "size"))
        of = f"in the descriptor of {member.name}"
        sums += (_fields(reader, _DESCRIPTOR, ((4, "CRC32", "hash"), *sizes), of)["CRC32"],)
    return member._replace(sums=sums, content=content)


def rewrites(data: bytes, member: Member) -> tuple[Rewrite, ...]:
    """Other contents of a member, with a CRC32 to each wherever one is recorded."""
    if member.content is None:
        return ()
    start, stop = member.content.start, member.content.stop
    old = data[start:stop]
    lowest, highest = bytes([old[0] ^ 1]) + old[1:], old[:-1] + bytes([old[-1] ^ 0x80])
    found = []
    for new in (lowest, highest, bytes(len(old)), old[::-1], old[1:] + old[:1]):
        if new != old:
            # A part as small as can be: this is what a person will read.
            first = next(n for n, (a, b) in enumerate(zip(old, new, strict=True)) if a != b)
            last = next(n for n in range(len(old), 0, -1) if old[n - 1] != new[n - 1])
            crc = zlib.crc32(new).to_bytes(4, "little")
            changed = (start + first, start + last, new[first:last])
            found.append(Rewrite((changed, *((sum_.start, sum_.stop, crc) for sum_ in member.sums))))
    return tuple(found)
