"""What is shown while searches go on in other processes."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from pytest_tensorizer.fuzz import progress
from pytest_tensorizer.fuzz.progress import Progress, line, read, write

LONG = 30.0


def facts(examples: int, *failures: str) -> dict[str, Any]:
    return {"examples": examples, "failures": list(failures)}


@pytest.mark.parametrize(
    ("found", "elapsed", "told"),
    [
        ([], 0.0, "fuzz: 0 of 60 s, 0 examples, 0 distinct failures"),
        ([facts(10, "a")], 2.0, "fuzz: 2 of 60 s, 10 examples, 5 a second, 1 distinct failure"),
        (
            [facts(123_456, "a", "b"), facts(1, "a")],
            60.0,
            "fuzz: 60 of 60 s, 123,457 examples, 2,058 a second, 3 distinct failures",
        ),
    ],
)
def test_line(found: list[dict[str, Any]], elapsed: float, told: str) -> None:
    assert line(found, elapsed, 60.0) == told


def test_what_is_written_last_is_read(tmp_path: Path) -> None:
    write(tmp_path, "area/check@format:mine", facts(1))
    write(tmp_path, "area/check@format:mine", facts(2, "wrong bits"))
    write(tmp_path, "area/other@format:mine", facts(3))
    found = {search["name"]: search for search in read(tmp_path)}
    assert found == {
        "area/check@format:mine": {"name": "area/check@format:mine", **facts(2, "wrong bits")},
        "area/other@format:mine": {"name": "area/other@format:mine", **facts(3)},
    }


def test_half_a_file_is_never_read(tmp_path: Path) -> None:
    """Readers and a writer at once: a file is there whole, or as it was."""
    done = threading.Event()

    def writes() -> None:
        for count in range(300):
            write(tmp_path, "search", facts(count, *["x" * 5000] * 5))
        done.set()

    writer = threading.Thread(target=writes)
    writer.start()
    seen = []
    while not done.is_set():
        seen += [search["examples"] for search in read(tmp_path)]
    writer.join()
    assert seen == sorted(seen)
    assert [path.name for path in tmp_path.iterdir()] == ["search.json"]


def test_names_of_any_kind_are_files(tmp_path: Path) -> None:
    write(tmp_path, "../a/b[c]:ü", facts(1))
    assert [path.parent for path in tmp_path.glob("**/*.json")] == [tmp_path]
    assert json.loads(next(tmp_path.glob("*.json")).read_text(encoding="utf-8"))["name"] == "../a/b[c]:ü"


class Shown:
    """Takes lines, and lets a test wait for one."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.came = threading.Condition()

    def __call__(self, told: str) -> None:
        with self.came:
            self.lines.append(told)
            self.came.notify_all()

    def wait_for(self, count: int) -> None:
        with self.came:
            assert self.came.wait_for(lambda: len(self.lines) >= count, timeout=LONG), self.lines


def test_a_new_failure_is_told_at_once_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LOOKS", 0.01)
    shown = Shown()
    shows = Progress(tmp_path, seconds=60.0, show=shown, every=3600.0)
    shows.start()
    write(tmp_path, "area/check", facts(5, "wrong bits"))
    shown.wait_for(2)
    write(tmp_path, "area/check", facts(9, "wrong bits", "died"))
    shown.wait_for(4)
    write(tmp_path, "area/check", facts(12, "wrong bits", "died"))
    shows.stop()
    assert [told for told in shown.lines if " of 60 s" not in told] == [
        "fuzz: area/check: wrong bits",
        "fuzz: area/check: died",
    ]
    assert shown.lines[-1].endswith(", 2 distinct failures")
    assert ", 12 examples, " in shown.lines[-1]
    assert "tensorizer-fuzz-progress" not in {thread.name for thread in threading.enumerate()}


def test_a_new_failure_is_told_with_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = Shown()
    shows = Progress(tmp_path, seconds=60.0, show=shown, every=3600.0)
    write(tmp_path, "area/check", {**facts(5, "wrong bits"), "files": {"wrong bits": str(tmp_path / "findings/x.py")}})
    shows._look(is_time=False)
    assert shown.lines[0] == "fuzz: area/check: wrong bits\n      see findings/x.py"


def test_lines_come_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LOOKS", 0.01)
    shown = Shown()
    shows = Progress(tmp_path, seconds=60.0, show=shown, every=0.02)
    shows.start()
    for count in (1, 2, 3):
        write(tmp_path, "area/check", facts(count))
        shown.wait_for(count)
    shows.stop()
    assert [told.split(", ")[1] for told in shown.lines] == ["1 examples", "2 examples", "3 examples"]


def test_the_time_after_the_last_search_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests may follow."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    shown = Shown()
    shows = Progress(tmp_path, seconds=60.0, show=shown, every=3600.0)
    for seconds, count in [(0, 1), (20, 40), (500, 40)]:
        now[0] = 100.0 + seconds
        write(tmp_path, "area/check", facts(count))
        shows._look(is_time=seconds > 100)
    assert shown.lines == ["fuzz: 20 of 60 s, 40 examples, 2 a second, 0 distinct failures"]


def test_nothing_is_shown_of_nothing(tmp_path: Path) -> None:
    shown = Shown()
    shows = Progress(tmp_path, seconds=60.0, show=shown, every=0.0)
    shows.start()
    shows.stop()
    assert shown.lines == []
