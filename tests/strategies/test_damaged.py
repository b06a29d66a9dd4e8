"""Damaged files: every kind of damage is drawn, none is undone, what is found is simple, and its repr is code."""

from __future__ import annotations

import json
import pickle
import struct
import zipfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis.errors import InvalidArgument

from pytest_tensorizer.strategies.damaged import (
    Append,
    Cut,
    Damaged,
    Delete,
    Flip,
    Insert,
    Repeat,
    Replace,
    Swap,
    Write,
    Zero,
    damaged,
)
from pytest_tensorizer.strategies.structure import Region, regions
from tests.strategies.structure import files

FORMATS = ("tensorizer", "safetensors", "zip", "legacy")
EDITS = {"cut", "flip", "write", "zero", "insert", "delete", "repeat", "swap", "append"}
GOOD = {name: files.small(name) for name in FORMATS}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same files on the disk: with a path, a draw has a short repr."""
    directory = tmp_path_factory.mktemp("good")
    for name, data in GOOD.items():
        (directory / name).write_bytes(data)
    return {name: directory / name for name in GOOD}


def evaluated(text: str) -> Any:
    """What `text` is to somebody who has imported everything from the module."""
    namespace: dict[str, Any] = {}
    exec("from pytest_tensorizer.strategies.damaged import *", namespace)
    return eval(text, namespace)


def each(file: bytes | Path, count: int, check: Callable[[Damaged], Any], **arguments: int) -> None:
    """Call `check` with about `count` draws, the same each time."""

    @settings(
        max_examples=count,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )
    @given(damaged(file, **arguments))
    def run(drawn: Damaged) -> None:
        check(drawn)

    run()


def test_draws(paths: dict[str, Path]) -> None:
    """Every draw differs from the file and is the edits applied in turn; every edit and kind of region is drawn."""
    seen = {name: Counter[str]() for name in FORMATS}

    def check(name: str, drawn: Damaged) -> None:
        assert drawn.data != GOOD[name]
        data = GOOD[name]
        for edit in drawn.edits:
            data = edit.apply(data)
        assert data == drawn.data
        assert drawn.edits
        assert drawn.description
        assert drawn.description.isprintable()
        seen[name].update(drawn.traits)

    for name, path in paths.items():
        each(path, 400, partial(check, name))
        assert {region.kind for region in regions(GOOD[name])} <= set(seen[name]), name
    assert set().union(*seen.values()) >= EDITS
    assert "replace" in seen["safetensors"]


@pytest.mark.parametrize("write", [files.safetensors, files.torch_legacy])
def test_a_file_is_cut_at_every_boundary(write: Callable[[Any], bytes]) -> None:
    data = write({"a": torch.ones(2, 3)})
    cuts: set[int] = set()
    each(data, 700, lambda drawn: cuts.update(e.at for e in drawn.edits if isinstance(e, Cut)))
    assert not {region.start for region in regions(data)} - cuts, "boundaries at which the file was never cut"
    large = [region for region in regions(data) if region.stop - region.start > 8]
    assert any({region.start + 1, region.stop - 1} & cuts for region in large)
    assert any(region.start + 1 < at < region.stop - 1 for at in cuts for region in large)


def test_small_fields_are_hit_as_often_as_large_data() -> None:
    data = files.safetensors({"a": torch.zeros(20000), "b": torch.zeros(3)})
    seen: Counter[str] = Counter()
    each(data, 400, lambda drawn: seen.update(drawn.traits), max_edits=1)
    assert seen["offset"] > seen["data"] / 3
    assert seen["shape"] > seen["data"] / 8


def test_headers_of_safetensors_remain_json_of_the_right_length() -> None:
    good = GOOD["safetensors"]
    header = [r for r in regions(good) if r.kind != "data"][-1].stop
    formed = []

    def check(drawn: Damaged) -> None:
        if {"cut", "append"} & drawn.traits or drawn.data[:header] == good[:header]:
            return
        try:
            (size,) = struct.unpack_from("<Q", drawn.data)
            if len(drawn.data) - size - 8 == len(good) - header:
                json.loads(drawn.data[8 : 8 + size])
                formed.append(drawn)
        except (ValueError, struct.error):
            pass

    each(good, 400, check, max_edits=1)
    assert len(formed) > 30
    assert len({drawn.data for drawn in formed}) > 25


def test_contents_of_zip_archives_change_with_right_checksums(tmp_path: Path) -> None:
    good, agreeing = GOOD["zip"], []
    directory = next(r.start for r in regions(good) if "in the directory" in r.name)

    def check(drawn: Damaged) -> None:
        if len(drawn.data) == len(good) and {"data", "hash", "write"} <= drawn.traits and "size" not in drawn.traits:
            (tmp_path / "drawn.pt").write_bytes(drawn.data)
            try:
                with zipfile.ZipFile(tmp_path / "drawn.pt") as archive:
                    if archive.testzip() is None and drawn.data[:directory] != good[:directory]:
                        agreeing.append(drawn)
            except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, OSError):
                pass

    each(good, 400, check, max_edits=1)
    assert len(agreeing) > 10


@pytest.mark.parametrize("name", FORMATS)
def test_a_draw_is_code_and_can_be_pickled(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.bin"
    path.write_bytes(GOOD[name])
    drawn: list[Damaged] = []
    each(path, 60, drawn.append)
    for value in drawn:
        assert repr(value).startswith(f"Damaged({str(path)!r}, [")
        again = evaluated(repr(value))
        assert again == value
        assert hash(again) == hash(value)
        assert (again.data, again.traits, again.description) == (value.data, value.traits, value.description)
    text = pickle.dumps(drawn)
    path.unlink()
    for value, again in zip(drawn, pickle.loads(text), strict=True):
        assert again == value
        assert (again.data, again.traits, again.description) == (value.data, value.traits, value.description)
        assert repr(again) == repr(value)
    assert drawn[0] != 1
    assert len(set(drawn)) > 20


def test_a_falsifying_example_is_code() -> None:
    @settings(database=None, derandomize=True)
    @given(damaged(b"some text"))
    def fails(example: Damaged) -> None:
        raise ValueError

    with pytest.raises(ValueError) as caught:
        fails()
    (note,) = [note for note in caught.value.__notes__ if "example=" in note]
    code = note.partition("example=")[2].rpartition(",")[0]
    assert evaluated(code).data == b""
    assert code == "Damaged(b'some text', [Cut(at=0)])"


def test_bytes_are_shown_as_bytes() -> None:
    value = Damaged(b"good", [Flip(at=1, bit=0), Cut(at=3)])
    assert value.data == b"gno"
    assert repr(value) == "Damaged(b'good', [Flip(at=1, bit=0), Cut(at=3)])"
    assert evaluated(repr(value)) == value
    assert Damaged(bytearray(b"good"), [Cut(3)]) == Damaged(b"good", (Cut(3),)) != Damaged(b"good", [Cut(2)])


@pytest.mark.parametrize(
    ("edit", "data"),
    [
        (Cut(3), b"abc"),
        (Cut(6), b"abcdef"),
        (Flip(0, 1), b"cbcdef"),
        (Write(4, b"XYZ"), b"abcdXY"),
        (Zero(1, 3), b"a\0\0def"),
        (Zero(4, 9), b"abcd\0\0"),
        (Replace(1, 5, b"-"), b"a-f"),
        (Insert(6, b"!"), b"abcdef!"),
        (Delete(0, 2), b"cdef"),
        (Repeat(0, 2, 6), b"abcdefab"),
        (Repeat(4, 6, 0), b"efabcdef"),
        (Swap(0, 1, 3, 5), b"debcaf"),
        (Append(b"!"), b"abcdef!"),
    ],
    ids=repr,
)
def test_edits(edit: Any, data: bytes) -> None:
    assert edit.apply(b"abcdef") == data
    assert evaluated(repr(edit)) == edit


@pytest.mark.parametrize("edit", [Cut(7), Cut(-1), Flip(6, 0), Write(7, b"x"), Insert(8, b"x")], ids=repr)
def test_an_edit_outside_of_the_file_is_an_error(edit: Any) -> None:
    with pytest.raises(ValueError, match=r"there is no offset -?\d+ in 6 bytes"):
        Damaged(b"abcdef", [edit])


def test_descriptions_name_the_place() -> None:
    good = GOOD["tensorizer"]
    field = next(r for r in regions(good) if r.name == "data length in the header of tensor 'a'")
    assert Damaged(good, [Write(field.start, (25).to_bytes(8, "little"))]).description == (
        "data length in the header of tensor 'a' set from 24 to 25"
    )
    assert Damaged(good, [Cut(field.stop)]).description == (
        f"cut at byte {field.stop}, the beginning of the data of tensor 'a'"
    )
    cut = Damaged(good, [Cut(field.stop + 5)])
    assert cut.description == f"cut at byte {field.stop + 5}, 5 into the 24 of the data of tensor 'a'"
    assert cut.traits == {"cut", "data"}


@pytest.mark.parametrize(
    ("file", "arguments", "message"),
    [
        (b"", {}, r"file=<0 bytes> is empty"),
        (3, {}, r"file=3 is no file"),
        (None, {}, r"file=None is no file"),
        ("/no/such/file", {}, r"file='/no/such/file' cannot be read: .*No such file"),
        (b"x", {"max_edits": 0}, r"max_edits=0 is no int of at least 1"),
        (b"x", {"max_edits": True}, r"max_edits=True is no int"),
        (b"x", {"max_edits": 1.5}, r"max_edits=1.5 is no int"),
    ],
)
def test_arguments_are_checked_at_once(file: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        damaged(file, **arguments)


@pytest.mark.parametrize(
    "data",
    [GOOD["zip"][:-30], b"\x20\0\0\0\0\0\0\0" + b'{"weight": ["float32", [3], 0]}' + bytes(13), b"|TZR| hello"],
    ids=["zip", "length and JSON", "magic"],
)
def test_what_only_looks_like_a_format_is_damaged_as_bytes(data: bytes) -> None:
    """Many a format of one's own has a length and JSON behind it."""
    seen: set[str] = set()
    each(data, 200, lambda drawn: seen.update(drawn.traits))
    assert {"cut", "flip", "file"} <= seen
    assert not {"dtype", "header", "data"} & seen


def test_at_most_so_many_places() -> None:
    sizes: Counter[int] = Counter()
    each(b"some text", 100, lambda drawn: sizes.update([len(drawn.edits)]), max_edits=1)
    assert set(sizes) == {1}
    each(b"some text", 150, lambda drawn: sizes.update([len(drawn.edits)]), max_edits=4)
    assert {1, 2, 3, 4} <= set(sizes)


def test_the_file_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "read.once"
    path.write_bytes(GOOD["zip"])
    strategy = damaged(path)
    path.unlink()
    assert find(strategy, lambda drawn: True, settings=settings(database=None)).data == b""


def test_one_byte_can_be_damaged() -> None:
    each(b"\0", 100, lambda drawn: None)


class Of:
    """A small file, with the regions that a property speaks of."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.data_regions = [region for region in regions(self.data) if region.kind == "data"]
        self.last: Region = self.data_regions[-1]

    def changed(self, drawn: Damaged, region: Region) -> bool:
        kept = len(drawn.data) == len(self.data)
        return kept and drawn.data[region.start : region.stop] != self.data[region.start : region.stop]


def flipped(of: Of, drawn: Damaged) -> bool:
    places = [edit.at for edit in drawn.edits if isinstance(edit, Flip)]
    return any(region.start <= at < region.stop for region in of.data_regions for at in places)


def cut_short(of: Of, drawn: Damaged) -> bool:
    return len(drawn.data) < len(of.data) and of.data.startswith(drawn.data)


SLOW = ("flip in a tensor", "tensorizer")

# A property, what is found for it, and in how many calls of the property: about twice the most that was counted.
SHRINK: dict[str, tuple[Callable[[Of, Damaged], Any], Callable[[Of, Damaged], Any], int]] = {
    "anything": (lambda of, d: True, lambda of, d: d.edits == (Cut(0),), 210),
    "cut, but not to nothing": (lambda of, d: d.data and cut_short(of, d), lambda of, d: d.edits == (Cut(1),), 200),
    "cut with the last tensor begun": (
        lambda of, d: cut_short(of, d) and len(d.data) >= of.last.start,
        lambda of, d: d.edits == (Cut(of.last.start),),
        600,
    ),
    "cut in a tensor": (
        lambda of, d: cut_short(of, d) and any(r.start < len(d.data) < r.stop for r in of.data_regions),
        lambda of, d: d.edits in [(Cut(r.start + 1),) for r in of.data_regions],
        400,
    ),
    "as long as before": (
        lambda of, d: len(d.data) == len(of.data),
        lambda of, d: len(d.edits) == 1 and isinstance(d.edits[0], Write) and d.edits[0].at == 0,
        300,
    ),
    "longer": (
        lambda of, d: len(d.data) > len(of.data),
        lambda of, d: d.edits == (Insert(0, b"\0"),) or {"replace", "write"} < d.traits,
        300,
    ),
    "last tensor changed": (
        lambda of, d: of.changed(d, of.last),
        lambda of, d: len({e.word for e in d.edits}) == 1 and d.traits & {"write", "swap", "zero"},
        1400,
    ),
    "flip in a tensor": (flipped, lambda of, d: d.edits in [(Flip(r.start, 0),) for r in of.data_regions], 400),
    "cut and something else": (
        lambda of, d: len({e.word for e in d.edits}) == 2 and "cut" in d.traits,
        lambda of, d: len(d.edits) == 2 and d.edits[0] == Cut(1),
        200,
    ),
}


@pytest.mark.parametrize(
    ("case", "name"),
    # Of the many places in a .tensors file few are data: to find a flip there takes too long for a test.
    [(case, name) for name in ("tensorizer", "safetensors") for case in SHRINK if (case, name) != SLOW],
)
def test_shrinks(case: str, name: str, paths: dict[str, Path]) -> None:
    of = Of(GOOD[name])
    holds, wanted, limit = SHRINK[case]
    calls = 0

    def condition(drawn: Damaged) -> bool:
        nonlocal calls
        calls += 1
        return bool(holds(of, drawn))

    quick = settings(database=None, derandomize=True, max_examples=3000, suppress_health_check=list(HealthCheck))
    found = find(damaged(paths[name]), condition, settings=quick)
    print(f"{case} | {name} | {list(found.edits)} after {calls} calls")
    assert wanted(of, found), f"{found!r} after {calls} calls"
    assert calls <= limit, f"{found!r} after {calls} calls"
