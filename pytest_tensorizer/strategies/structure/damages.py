"""From a few small integers to a damage: 0 is always the simplest, so that whoever makes them smaller, simplifies."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, TypeVar

from pytest_tensorizer.strategies.structure.edits import (
    Append,
    Cut,
    Delete,
    Edit,
    Flip,
    Insert,
    Repeat,
    Replace,
    Swap,
    Write,
    Zero,
)
from pytest_tensorizer.strategies.structure.region import Region, Rewrite
from pytest_tensorizer.strategies.structure.source import Source

T = TypeVar("T")

# The index of an act, and of a place of the source.
Choice = tuple[int, int]

_SMALL = 64
_BYTES = (b"\0", b"\xff", b"\n", bytes(8), b"\xff" * 8, b"\r", b"\0\1", bytes(512))


def highest(source: Source) -> Choice:
    """The highest value of each integer of a choice; the lowest is 0."""
    return len(_ACTS) - 1, len(source.places) - 1


def make(source: Source, choices: Iterable[Choice]) -> tuple[tuple[Edit, ...], bytes]:
    """The edits, and what they make of the file: never the file as it was."""
    damages = [_damage(source, choice) for choice in choices]
    edits, data = _applied(source, damages)
    if data == source.data:
        # One has undone the other.
        edits, data = _applied(source, damages[:1])
    return edits, data


def _damage(source: Source, choice: Choice) -> list[Edit] | Rewrite:
    act, place = choice
    maker, detail = _ACTS[act]
    return maker(source, source.places[place], detail)


def _applied(source: Source, damages: list[list[Edit] | Rewrite]) -> tuple[tuple[Edit, ...], bytes]:
    """All together, from the end of the file to its beginning: so that no edit moves the place of the next."""
    edits: dict[Edit, None] = {}
    growth: dict[Region, int] = {}
    for damage in damages:
        if isinstance(damage, Rewrite):
            parts = [_part(start, stop, new) for start, stop, new in damage.parts]
            edits.update(dict.fromkeys(parts))
            if damage.length:
                grown = sum(len(new) - (stop - start) for start, stop, new in damage.parts)
                growth[damage.length] = growth.get(damage.length, 0) + grown
        else:
            edits.update(dict.fromkeys(damage))
    for region, grown in growth.items():
        if grown:
            edits[_set(region, region.value(source.data) + grown)] = None
    size = len(source.data)
    chosen = list(edits)
    cuts = [edit for edit in edits if isinstance(edit, Cut)]
    if cuts:
        # What lies behind the cut does not show.
        cut = min(cuts, key=lambda edit: edit.at)
        chosen = [cut, *(edit for edit in edits if _offset(edit, size) < cut.at)]
    chosen.sort(key=lambda edit: (-_offset(edit, size), edit.order))
    data = source.data
    for edit in chosen:
        data = edit.apply(data)
    return tuple(chosen), data


def _offset(edit: Edit, size: int) -> int:
    return edit.spans[0][0] if edit.spans else size


def _part(start: int, stop: int, new: bytes) -> Edit:
    if len(new) == stop - start:
        return Write(start, new)
    return Replace(start, stop, new) if start < stop else Insert(start, new)


def _set(region: Region, value: int) -> Write:
    """The integer of fixed width in `region` set to `value`, or to what of it goes into so many bytes."""
    width = region.stop - region.start
    byteorder: Literal["little", "big"] = "big" if region.integer == "big" else "little"
    return Write(region.start, (value % (1 << 8 * width)).to_bytes(width, byteorder))


def _cut(source: Source, at: int, detail: float) -> list[Edit]:
    """At the place, or at the beginning of a region, of which each is as likely, however few its places are."""
    if detail >= 1 / 3:
        at = source.regions[bisect_left(source.places, at) * len(source.regions) // len(source.places)].start
    return [Cut(at)]


def _field(source: Source, at: int, detail: float) -> list[Edit]:
    """Another value for the region that `at` is in."""
    index = source.index(at)
    found = source.fields.get(index)
    if found is None:
        found = source.fields[index] = [e for e in dict.fromkeys(_values(source, index)) if _changes(source, e)]
    return [_pick(found, detail)] if found else [Cut(at)]


def _values(source: Source, index: int) -> Iterator[Edit]:
    region, alike, data = source.regions[index], source.alike(index), source.data
    start, stop, width = region.start, region.stop, region.stop - region.start
    if region.integer in ("little", "big"):
        value, ones, left = region.value(data), (1 << 8 * width) - 1, len(data) - stop
        limits = (0, 1, value + 1, value - 1, ones, ones >> 1, (ones >> 1) + 1)
        for new in (*limits, *(other.value(data) for other in alike), value * 2, left, left + 1):
            yield _set(region, new)
    elif width <= _SMALL:
        old = data[start:stop]
        others = (data[other.start : other.stop][:width] for other in alike)
        for text in (bytes(width), b"\xff" * width, *others, old[::-1], old[:-1] + bytes([old[-1] ^ 1])):
            yield Write(start, text)
    else:
        yield Zero(start, stop)
        yield Write(start, b"\xff" * 16)
        yield Write(stop - 16, b"\xff" * 16)
    for other in alike:
        if other.start >= stop:
            yield Swap(start, stop, other.start, other.stop)


def _changes(source: Source, edit: Edit) -> bool:
    """Whether an edit that takes nothing from the file and adds nothing to it changes it."""
    data = source.data
    if isinstance(edit, Swap):
        # Parts that differ are not enough: zeros and some more zeros can be exchanged as well.
        return edit.apply(data) != data
    start, stop = edit.spans[0]
    return data[start:stop] != (edit.data if isinstance(edit, Write) else bytes(stop - start))


def _rewrite(source: Source, at: int, detail: float) -> list[Edit] | Rewrite:
    if not source.rewrites:
        return _field(source, at, detail)
    number = source.index(at) % len(source.rewrites)
    found = source.listed.get(number)
    if found is None:
        found = source.listed[number] = source.rewrites[number]()
    return _pick(found, detail) if found else [Cut(at)]


def _flip(source: Source, at: int, detail: float) -> list[Edit]:
    return [Flip(at, _pick(range(8), detail))]


def _stop(source: Source, at: int, detail: float) -> int:
    """Where a part that begins at `at` ends: after a byte, with its region, after a power of two, or with the next."""
    index = source.index(at)
    following = min(index + 1, len(source.regions) - 1)
    stops = (at + 1, source.regions[index].stop, at + 8, at + 512, source.regions[following].stop, at + 4096)
    return min(_pick(stops, detail), len(source.data))


def _zero(source: Source, at: int, detail: float) -> list[Edit]:
    edit = Zero(at, _stop(source, at, detail))
    return [edit] if _changes(source, edit) else [Cut(at)]


def _delete(source: Source, at: int, detail: float) -> list[Edit]:
    return [Delete(at, _stop(source, at, detail))]


def _insert(source: Source, at: int, detail: float) -> list[Edit]:
    return [Insert(at, _pick(_BYTES, detail))]


def _repeat(source: Source, at: int, detail: float) -> list[Edit]:
    """Behind itself, or at the beginning of some other region."""
    number, detail = divmod(detail * 10, 1)
    stop = _stop(source, at, detail)
    to = source.regions[int(number) * 7919 % len(source.regions)].start if number else stop
    return [Repeat(at, stop, to)]


def _swap(source: Source, at: int, detail: float) -> list[Edit]:
    """With what is behind it, as long as it is itself, or only to the end of the region in which that is."""
    number, inner = divmod(detail * 2, 1)
    stop = _stop(source, at, inner)
    end = len(source.data) if number else source.regions[source.index(min(stop, len(source.data) - 1))].stop
    edit = Swap(at, stop, stop, min(2 * stop - at, end))
    return [edit] if edit.start2 < edit.stop2 and _changes(source, edit) else [Cut(at)]


def _append(source: Source, at: int, detail: float) -> list[Edit]:
    if detail > 3 / 4:
        return [Repeat(0, len(source.data), len(source.data))]
    return [Append(_pick(_BYTES, detail))]


def _pick(options: Sequence[T], detail: float) -> T:
    """The lower `detail` is, the nearer to the first."""
    return options[int(detail * len(options))]


# In the order in which the simpler is found; where one would change nothing, it is a cut. How many there are of each is
# how often it is drawn: all together are fewer than a thousand, above which Hypothesis begins to prefer the lower ones.
_ACTS: tuple[tuple[Callable[[Source, int, float], list[Edit] | Rewrite], float], ...] = tuple(
    (maker, detail / details)
    for maker, details in (
        (_cut, 240),
        (_field, 200),
        (_rewrite, 160),
        (_flip, 96),
        (_zero, 42),
        (_delete, 48),
        (_insert, 48),
        (_repeat, 60),
        (_swap, 48),
        (_append, 30),
    )
    for detail in range(details)
)
