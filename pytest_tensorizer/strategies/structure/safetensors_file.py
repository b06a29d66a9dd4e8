"""The layout of Hugging Face's safetensors: the length of a JSON header, the header, and the data of each tensor."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from pytest_tensorizer.strategies.structure.region import Reader, Region

_TOKEN = re.compile(rb'[ \t\r\n]+|([{}\[\]:,]|"(?:[^"\\]|\\.)*"|[-+.\w]+)')
_KINDS = {"dtype": "dtype", "shape": "shape", "data_offsets": "offset"}


class Entry(NamedTuple):
    """One tensor in the header: where its key, its fields and its numbers stand in the file."""

    name: str
    key: Region
    stop: int
    dtype: Region
    shape: tuple[Region, ...]
    offsets: tuple[Region, Region]


def recognised(data: bytes) -> bool:
    """Whether `data` begins like a safetensors file: there is no magic, but a length that fits, and a brace."""
    return data[8:9] == b"{" and 8 + int.from_bytes(data[:8], "little") <= len(data)


def regions(data: bytes) -> tuple[Region, ...]:
    """The regions of a safetensors file. Raises ValueError with an offset where it is not well formed."""
    return parse(data)[0]


def parse(data: bytes) -> tuple[tuple[Region, ...], tuple[Entry, ...]]:
    """The regions, and the entries of the header in its order."""
    reader = Reader(data, "safetensors file")
    end = reader.number(8, "length of the JSON header", "size") + 8
    if end > len(data):
        raise reader.error(f"the JSON header would end at {end}, the file ends at {len(data)}")
    try:
        header = json.loads(data[8:end])
    except ValueError as error:
        raise reader.error(f"the header is no JSON: {error}") from error
    entries = tuple(_entries(reader, header, _Tokens(reader, end)))
    reader.upto(len(data[:end].rstrip(b" ")), "punctuation of the JSON header", "json")
    reader.upto(end, "spaces behind the JSON header", "padding")
    for entry in sorted(entries, key=lambda entry: [number.value(data) for number in entry.offsets]):
        start, stop = (end + number.value(data) for number in entry.offsets)
        reader.upto(start, f"gap before tensor {entry.name}", "padding")
        reader.upto(stop, f"data of tensor {entry.name}", "data")
    reader.upto(len(data), "bytes behind the last tensor", "file")
    return tuple(reader.regions), entries


class _Tokens:
    """The tokens of the header in their order; `json` has already said that it is well formed."""

    def __init__(self, reader: Reader, end: int) -> None:
        self.reader = reader
        found = (m for m in _TOKEN.finditer(reader.data, 8, end) if m.group(1))
        self.tokens = iter([(m.start(), m.end(), m.group()) for m in found])
        # Where the object ends whose members were read last.
        self.stop = end

    def next(self) -> tuple[int, int, bytes]:
        try:
            return next(self.tokens)
        except StopIteration:
            raise self.reader.error("the JSON header ends too early") from None

    def text(self, name: str, kind: str) -> Region:
        """Note the characters of the next token, without its quotes."""
        start, stop, token = self.next()
        if token[:1] == b'"':
            start, stop = start + 1, stop - 1
        return self.note(Region(start, stop, name, kind))

    def note(self, region: Region) -> Region:
        self.reader.upto(region.start, "punctuation of the JSON header", "json")
        self.reader.at = region.stop
        if region.start < region.stop:
            self.reader.regions.append(region)
        return region

    def members(self) -> Iterator[str]:
        """The keys of the object that comes next; the caller reads the value of each."""
        self.next()
        _, self.stop, token = self.next()
        while token != b"}":
            yield str(json.loads(token))
            _, self.stop, token = self.next()
            if token == b",":
                token = self.next()[2]

    def numbers(self, name: str, kind: str) -> tuple[Region, ...]:
        self.next()
        found: list[Region] = []
        start, stop, token = self.next()
        while token != b"]":
            if token != b",":
                found.append(self.note(Region(start, stop, name.format(len(found)), kind, "decimal")))
            start, stop, token = self.next()
        return tuple(found)


def _entries(reader: Reader, header: Any, tokens: _Tokens) -> Iterator[Entry]:
    tokens.next()
    start, stop, token = tokens.next()
    while token != b"}":
        name = json.loads(token)
        what = "key" if name == "__metadata__" else "key of tensor"
        key = tokens.note(Region(start + 1, stop - 1, f"{what} {name!r}", "name"))
        tokens.next()
        if name == "__metadata__":
            _metadata(tokens)
        else:
            yield _entry(reader, name, key, header[name], tokens)
        start, stop, token = tokens.next()
        if token == b",":
            start, stop, token = tokens.next()


def _metadata(tokens: _Tokens) -> None:
    for key in tokens.members():
        tokens.next()
        tokens.text(f"metadata {key!r}", "text")


def _entry(reader: Reader, name: str, key: Region, value: Any, tokens: _Tokens) -> Entry:
    if not isinstance(value, dict) or value.keys() != _KINDS.keys():
        raise reader.error(f"tensor {name!r} should have {', '.join(_KINDS)}, is {value!r}", key.start)
    shape, offsets = value["shape"], value["data_offsets"]
    if not all(type(n) is int and n >= 0 for n in [*shape, *offsets]) or len(offsets) != 2:
        raise reader.error(f"tensor {name!r} has the shape {shape} and the data_offsets {offsets}", key.start)
    found: dict[str, tuple[Region, ...]] = {}
    for field in tokens.members():
        tokens.next()
        if field == "dtype":
            found[field] = (tokens.text(f"dtype of tensor {name!r}", "dtype"),)
        elif field == "shape":
            found[field] = tokens.numbers(f"dimension {{}} of tensor {_escaped(name)}", "shape")
        else:
            found[field] = tokens.numbers(f"data_offsets {{}} of tensor {_escaped(name)}", "offset")
    begin, end = found["data_offsets"]
    return Entry(repr(name), key, tokens.stop, found["dtype"][0], found["shape"], (begin, end))


def _escaped(name: str) -> str:
    return repr(name).replace("{", "{{").replace("}", "}}")
