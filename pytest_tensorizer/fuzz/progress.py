"""What the searches of all processes have done so far: each writes a file, and one process tells people."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

VARIABLE = "PYTEST_TENSORIZER_FUZZ_PROGRESS"
"""Names the directory of those files to all processes of a session."""

_SECONDS_BETWEEN_LOOKS = 1.0


def write(directory: Path, name: str, facts: dict[str, Any]) -> None:
    """Tell what the search `name` has done; `facts` are those of a :class:`~pytest_tensorizer.fuzz.search.Tally`, and
    "files": the failures that are written down, and where."""
    path = directory / f"{re.sub(r'[^A-Za-z0-9]', '-', name)}.json"
    new = path.with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps({**facts, "name": name}), encoding="utf-8")
    new.replace(path)


def read(directory: Path) -> list[dict[str, Any]]:
    """What all searches have told."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(directory.glob("*.json"))]


class Progress:
    """A thread that shows, while tests run elsewhere, how far they are.

    Args:
        directory: where the searches write.
        seconds: how long all of it is to take.
        show: takes a line.
        every: seconds between two lines.
    """

    def __init__(self, directory: Path, *, seconds: float, show: Callable[[str], None], every: float) -> None:
        self._directory = directory
        self._seconds = seconds
        self._show = show
        self._every = every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tensorizer-fuzz-progress", daemon=True)
        self._found: list[dict[str, Any]] = []
        self._shown: list[dict[str, Any]] = []
        # From when the first of them told something, as processes take time to start, to when the last one did.
        self._started = self._changed = 0.0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Show the last line: also where a person has had enough, it ends with what was tried."""
        self._stop.set()
        self._thread.join()
        self._look(is_time=True)

    def _run(self) -> None:
        last = time.monotonic()
        while not self._stop.wait(_SECONDS_BETWEEN_LOOKS):
            now = time.monotonic()
            if self._look(is_time=now >= last + self._every):
                last = now

    def _look(self, *, is_time: bool) -> bool:
        """Show what is new. Whether anything was shown."""
        found = read(self._directory)
        if found != self._found:
            self._changed = time.monotonic()
            self._started = self._started or self._changed
            self._found = found
        failures, told = _failures(found), _failures(self._shown)
        for name, fault in sorted(failures.keys() - told.keys()):
            # With its file, as the report may not come to that: a person may press Ctrl-C.
            file = failures[name, fault]
            self._show(f"fuzz: {name}: {fault}" + (f"\n      see {os.path.relpath(file)}" if file else ""))
        is_time = found != self._shown and (is_time or failures.keys() != told.keys())
        if is_time:
            self._show(line(found, self._changed - self._started, self._seconds))
            self._shown = found
        return is_time


def _failures(found: list[dict[str, Any]]) -> dict[tuple[str, str], str | None]:
    """Search and fault -> the file that reproduces it, if there is one."""
    return {(s["name"], fault): s.get("files", {}).get(fault) for s in found for fault in s["failures"]}


def line(found: list[dict[str, Any]], elapsed: float, seconds: float) -> str:
    """ "fuzz: 12 of 60 s, 4,123 examples, 344 a second, 2 distinct failures" """
    examples = sum(search["examples"] for search in found)
    failures = sum(len(search["failures"]) for search in found)
    rate = f", {examples / elapsed:,.0f} a second" if elapsed >= 1 else ""
    plural = "" if failures == 1 else "s"
    return f"fuzz: {elapsed:.0f} of {seconds:.0f} s, {examples:,} examples{rate}, {failures} distinct failure{plural}"
