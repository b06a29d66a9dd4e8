"""The layout of CoreWeave tensorizer's files, versions 1 to 5, encrypted or not.

A file header, an index of all tensors in a block of 256 KiB, then a header and the data for each tensor, and eight
zero bytes where the next header would begin. All integers are little-endian.
"""

from __future__ import annotations

from typing import NamedTuple

from pytest_tensorizer.strategies.structure.region import Reader, Region

MAGIC = b"|TZR|"
_ENCRYPTED, _VERSIONED = 1, 2


class _Entry(NamedTuple):
    name: str
    long: bool
    header: int
    data: int


def regions(data: bytes) -> tuple[Region, ...]:
    """The regions of a `.tensors` file. Raises ValueError with an offset where it is not well formed."""
    reader = Reader(data, ".tensors file")
    reader.expect(MAGIC, "magic")
    version = reader.number(4, "version", "version")
    flags = reader.number(32, "feature flags", "flags")
    reader.number(8, "total size of the data", "size")
    reader.take(8, "unused bytes of the file header", "padding")
    count = reader.number(8, "number of tensors", "count")
    size = reader.number(8, "length of the index", "size")
    end = reader.at + size
    entries: list[_Entry] = []
    # A count that is too high must not keep us here for 2**64 rounds: the first that does not fit ends it.
    while len(entries) < count:
        entries.append(_entry(reader, len(entries), versioned=bool(flags & _VERSIONED)))
    reader.upto(end, "unused bytes of the index", "padding")
    encrypted = version == 3 or (version >= 4 and bool(flags & _ENCRYPTED))
    for entry in sorted(entries, key=lambda entry: entry.header):
        reader.upto(entry.header, f"gap before the header of tensor {entry.name}", "padding")
        _tensor(reader, entry, encrypted)
    if reader.at < len(data):
        reader.number(8, "header size of the end mark", "size")
    reader.upto(len(data), "bytes behind the end mark", "file")
    return tuple(reader.regions)


def _entry(reader: Reader, number: int, *, versioned: bool) -> _Entry:
    of = f"of entry {number} of the index"
    long = versioned and reader.number(4, f"version {of}", "version") >= 5
    name = _sized(reader, 2, "name", "name", of)
    of = f"of tensor {name} in the index"
    reader.number(1, f"type {of}", "type")
    _sized(reader, 1, "dtype", "dtype", of)
    _shape(reader, of, long=long)
    header = reader.number(8, f"header offset {of}", "offset")
    data = reader.number(8, f"data offset {of}", "offset")
    reader.number(8, f"data length {of}", "size")
    return _Entry(name, long, header, data)


def _tensor(reader: Reader, entry: _Entry, encrypted: bool) -> None:
    begin = reader.at
    of = f"in the header of tensor {entry.name}"
    size = reader.number(8, f"header size {of}", "size")
    reader.number(2, f"module index {of}", "count")
    reader.number(1, f"type {of}", "type")
    name = _sized(reader, 2, "name", "name", of)
    if name != entry.name:
        raise reader.error(f"the header of tensor {entry.name} has the name {name}", begin)
    _sized(reader, 1, "dtype", "dtype", of)
    _shape(reader, of, long=entry.long)
    _hashes(reader, of)
    if encrypted:
        _crypt(reader, of)
    reader.upto(begin + size - 8, f"unknown bytes {of}", "padding")
    length = reader.number(8, f"data length {of}", "size")
    if entry.data != reader.at:
        raise reader.error(f"the index has the data of tensor {entry.name} at {entry.data}")
    reader.take(length, f"data of tensor {entry.name}", "data")


def _sized(reader: Reader, width: int, name: str, kind: str, of: str) -> str:
    """A text behind its length in bytes, as it is shown to a person."""
    size = reader.number(width, f"{name} length {of}", "size")
    return repr(reader.take(size, f"{name} {of}", kind).decode("utf-8", "backslashreplace"))


def _shape(reader: Reader, of: str, *, long: bool) -> None:
    for axis in range(reader.number(1, f"number of dimensions {of}", "count")):
        reader.number(8 if long else 4, f"dimension {axis} {of}", "shape")


def _hashes(reader: Reader, of: str) -> None:
    end = reader.number(2, f"length of the hashes {of}", "size") + reader.at
    for number in range(reader.number(1, f"number of hashes {of}", "count")):
        hash_type = reader.number(1, f"type of hash {number} {of}", "type")
        name = {0: "CRC32", 1: "SHA256"}.get(hash_type, f"hash {number}")
        size = reader.number(1, f"{name} length {of}", "size")
        reader.take(size, f"{name} {of}", "hash")
    reader.upto(end, f"unknown hash {of}", "padding")


def _crypt(reader: Reader, of: str) -> None:
    of = f"of the encryption {of}"
    end = reader.number(8, f"length {of}", "size") + reader.at
    for number in range(reader.number(2, f"number of chunks {of}", "count")):
        stop = reader.number(8, f"length of chunk {number} {of}", "size") + reader.at
        chunk = reader.number(2, f"type of chunk {number} {of}", "type")
        if chunk == 1:
            reader.number(2, f"key derivation {of}", "type")
            reader.number(8, f"operations limit {of}", "count")
            reader.number(8, f"memory limit {of}", "size")
            reader.number(4, f"algorithm {of}", "type")
            reader.take(reader.number(2, f"salt length {of}", "size"), f"salt {of}", "crypt")
        elif chunk == 2:
            reader.number(8, f"chunk size {of}", "size")
            reader.take(24, f"nonce {of}", "crypt")
            for mac in range(reader.number(8, f"number of MACs {of}", "count")):
                reader.take(16, f"MAC {mac} {of}", "crypt")
        elif chunk == 3:
            reader.take(24, f"nonce {of}", "crypt")
            reader.take(16, f"MAC {of}", "crypt")
        reader.upto(stop, f"rest of chunk {number} {of}", "crypt")
    reader.upto(end, f"rest {of}", "crypt")
