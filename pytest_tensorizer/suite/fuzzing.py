"""--tensorizer-fuzz: how its seconds are shared out, and what is shown meanwhile."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest

from pytest_tensorizer.fuzz.progress import VARIABLE, Progress
from pytest_tensorizer.options import Settings, needs_terminal
from pytest_tensorizer.process.limits import zygotes_are_available
from pytest_tensorizer.process.pytest_child import CLEAN
from pytest_tensorizer.suite.check import CHECK, Check
from pytest_tensorizer.suite.collect import ROOT
from pytest_tensorizer.suite.report.hooks import refuse

MODULE = "test_properties.py"
SECONDS = "PYTEST_TENSORIZER_FUZZ_SECONDS"
"""Tells a clean process how long its search is to take."""

_MOST = 10 * 24 * 3600
_SECONDS_BETWEEN_LINES = 10.0


class Fuzzing:
    """The hooks that share out the time, in each process that collects tests.

    Attributes:
        total: the seconds of --tensorizer-fuzz; None without it.
    """

    def __init__(self, settings: Settings) -> None:
        """Raises pytest.UsageError if the option makes no sense, or is not to be had."""
        self.total = _total(settings)
        self._shares: dict[str, float] = {}

    # Last, when those of -k and --lf have taken away what is not to run.
    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if self.total is None or CLEAN in config.stash:
            return
        searching = {item.nodeid: item.stash[CHECK] for item in items if _searches(item) and CHECK in item.stash}
        if not searching and not config.option.collectonly:
            refuse(config, f"--tensorizer-fuzz: no check that searches is selected. They are those of {ROOT}/{MODULE}")
        workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        self._shares = shares(searching, self.total, workers)
        # The longest first, so that no worker is left alone with it at the end.
        items.sort(key=lambda item: self._shares.get(item.nodeid, 0.0), reverse=True)

    def pytest_tensorizer_child_environment(self, item: pytest.Item) -> dict[str, str]:
        return {SECONDS: str(self._shares[item.nodeid])} if item.nodeid in self._shares else {}

    def seconds_for(self, item: pytest.Item) -> float | None:
        """How long the search of `item` is to take: what the parent of a clean process says, or this one."""
        told = os.environ.get(SECONDS)
        return float(told) if told else self._shares.get(item.nodeid)


def _searches(item: pytest.Item) -> bool:
    return item.nodeid.startswith(f"{ROOT}/{MODULE}::")


def _total(settings: Settings) -> float | None:
    if "fuzz" not in settings.explicit:
        return None
    try:
        total = float(settings.fuzz)
    except ValueError:
        total = 0.0
    if not 0 < total <= _MOST:
        raise pytest.UsageError(f"--tensorizer-fuzz={settings.fuzz}: give seconds, a number above 0 and up to {_MOST}")
    if not zygotes_are_available():
        raise pytest.UsageError("--tensorizer-fuzz tries examples in forked processes, with pidfds: it needs Linux 5.3")
    return total


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


class FuzzingReport:
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
