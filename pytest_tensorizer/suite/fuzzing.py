"""--tensorizer-fuzz: how its seconds are shared out, and what is shown meanwhile."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_tensorizer.fuzz.progress import VARIABLE, Progress
from pytest_tensorizer.options import Settings, needs_terminal
from pytest_tensorizer.process.limits import zygotes_are_available

if TYPE_CHECKING:
    from pytest_tensorizer.suite.check import Check

MODULE = "test_properties.py"
SECONDS = "PYTEST_TENSORIZER_FUZZ_SECONDS"
"""Tells a clean process how long its search is to take."""

_MOST = 10 * 24 * 3600
_SECONDS_BETWEEN_LINES = 10.0


def seconds(settings: Settings) -> float | None:
    """What --tensorizer-fuzz asks for. Raises pytest.UsageError if that makes no sense, or is not to be had."""
    text = settings.fuzz
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= _MOST:
        raise pytest.UsageError(f"--tensorizer-fuzz={text}: give a number of seconds, above 0 and up to {_MOST}")
    if not zygotes_are_available():
        raise pytest.UsageError("--tensorizer-fuzz tries examples in forked processes, with pidfds: it needs Linux 5.3")
    return found


def shares(checks: Mapping[str, Check], total: float, workers: int) -> dict[str, float]:
    """Node id -> seconds: the same for each area, and within one for each check.

    Workers search at the same time, so that all of it takes as long as was asked for; no check takes longer than that.
    """
    areas: dict[str, list[str]] = defaultdict(list)
    for nodeid, check in checks.items():
        areas[check.area].append(nodeid)
    return {
        nodeid: min(total, total * workers / len(areas) / len(nodeids))
        for nodeids in areas.values()
        for nodeid in nodeids
    }


class FuzzProgress:
    """The hooks that show how far the searches are, in the process that talks to people."""

    def __init__(self, config: pytest.Config, seconds: float) -> None:
        """Make the directory through which the searches tell; their processes inherit the variable that names it."""
        self._directory = Path(tempfile.mkdtemp(prefix="tensorizer-fuzz-"))
        os.environ[VARIABLE] = str(self._directory)
        config.add_cleanup(self._remove)
        self._progress = Progress(self._directory, seconds=seconds, show=self._show, every=_SECONDS_BETWEEN_LINES)
        self._stream = sys.stdout  # as the terminal reporter does, before output is captured
        self._is_captured = False

    def _remove(self) -> None:
        os.environ.pop(VARIABLE, None)
        shutil.rmtree(self._directory)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        if session.config.option.collectonly or needs_terminal(session.config):
            return (yield)
        self._progress.start()
        try:
            return (yield)
        finally:
            self._progress.stop()

    # While a test runs in this process, what is written would be taken for its output.

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self._is_captured = True

    def pytest_runtest_logfinish(self) -> None:
        self._is_captured = False

    def _show(self, text: str) -> None:
        if not self._is_captured:
            self._stream.write(f"\n{text}")
            self._stream.flush()
