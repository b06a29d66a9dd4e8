"""Changes to a safetensors header that keep it well-formed JSON."""

from __future__ import annotations

from pytest_tensorizer.strategies.structure.region import Region, Rewrite
from pytest_tensorizer.strategies.structure.safetensors_file import Entry

_LENGTH = Region(0, 8, "length of the JSON header", "size", "little")
_DTYPES = (b"F32", b"I32", b"F64", b"F16", b"BF16", b"U8", b"BOOL", b"F8_E4M3", b"C64", b"F128")

Part = tuple[int, int, bytes]


def rewrites(data: bytes, entries: tuple[Entry, ...], number: int) -> tuple[Rewrite, ...]:
    """Changes to entry `number` of the header: its dtype, shape, offsets or key, or that it is there once."""
    entry = entries[number]
    changes = [[(entry.dtype.start, entry.dtype.stop, dtype)] for dtype in _DTYPES]
    for field in (*entry.shape, *entry.offsets):
        value = field.value(data)
        for new in (0, 1, value + 1, value - 1, value * 2, 2**32, 2**63 - 1, 2**64 - 1, 2**64):
            changes.append([(field.start, field.stop, b"%d" % new)])
    if entry.shape:
        first, last = entry.shape[0], entry.shape[-1]
        values = [data[field.start : field.stop] for field in reversed(entry.shape)]
        changes.append([(field.start, field.stop, new) for field, new in zip(entry.shape, values, strict=True)])
        changes.append([(first.start, last.stop, b"")])
        changes.append([(first.start, first.start, b"1,")])
    for other in (entries[number - 1], entries[(number + 1) % len(entries)]):
        if other != entry:
            changes += _with(data, entry, other)
    changes += _whole(data, entry)
    found = [tuple(part for part in parts if data[part[0] : part[1]] != part[2]) for parts in changes]
    return tuple(Rewrite(parts, _LENGTH) for parts in found if parts)


def _with(data: bytes, entry: Entry, other: Entry) -> list[list[Part]]:
    """Two tensors of one name, two that overlap, two whose places are exchanged."""
    key = (entry.key.start, entry.key.stop, data[other.key.start : other.key.stop])
    pairs = list(zip(entry.offsets, other.offsets, strict=True))
    same = [(mine.start, mine.stop, data[its.start : its.stop]) for mine, its in pairs]
    back = [(its.start, its.stop, data[mine.start : mine.stop]) for mine, its in pairs]
    return [[key], same, same + back]


def _whole(data: bytes, entry: Entry) -> list[list[Part]]:
    """The entry without a name, twice, under a second name, and taken out."""
    begin = entry.key.start - 1
    text = data[begin : entry.stop] + b","
    renamed = text[:1] + b"_" + text[1:]
    if data[entry.stop : entry.stop + 1] == b",":
        out = (begin, entry.stop + 1, b"")
    else:
        out = (begin - (data[begin - 1 : begin] == b","), entry.stop, b"")
    return [[(entry.key.start, entry.key.stop, b"")], [(begin, begin, text)], [(begin, begin, renamed)], [out]]
