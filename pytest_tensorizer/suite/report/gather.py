"""Gathering results from reports: the same in one process, under xdist and from clean processes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from pytest_tensorizer.suite.judge import ATTRIBUTE

_RANK = {"passed": 0, "skipped": 1, "known": 2, "advice": 3, "failed": 4, "error": 5}


@dataclass
class Gatherer:
    """Collects one result for each check, from whatever phases of it are reported.

    Evidence is asked for: a test that was collected and has not reported its teardown was never finished.
    """

    root: str
    _results: dict[str, dict[str, Any]] = field(default_factory=dict)
    _expected: set[str] = field(default_factory=set)
    _deselected: set[str] = field(default_factory=set)
    _finished: set[str] = field(default_factory=set)

    def expect(self, nodeids: Iterable[str]) -> None:
        self._expected |= {nodeid for nodeid in nodeids if self._is_mine(nodeid)}

    def deselect(self, nodeids: Iterable[str]) -> None:
        """Each xdist worker says the same, so the ids are counted, not the calls."""
        self._deselected |= {nodeid for nodeid in nodeids if self._is_mine(nodeid)}

    def add(self, report: pytest.TestReport) -> None:
        result = getattr(report, ATTRIBUTE, None)
        if result is None and report.failed and self._is_mine(report.nodeid):
            # A worker that died, or an entry of the registry that matches nothing: no check has judged it.
            text = report.longrepr if isinstance(report.longrepr, str) else report.longreprtext
            name = report.nodeid.removeprefix(f"{self.root}/")
            result = {
                "id": name, "check": name, "area": "suite", "subject": "", "case": "", "level": "must", "version": "",
                "nodeid": report.nodeid, "target": "", "outcome": "error", "duration": report.duration,
                "message": next(iter(text.splitlines()), ""),
            }  # fmt: skip
        if result is None:
            return
        # A failed phase ends the matter: what crashed has no teardown, and must not be counted twice.
        if report.when == "teardown" or report.failed:
            self._finished.add(report.nodeid)
        before = self._results.get(report.nodeid)
        duration = result["duration"] + (before["duration"] if before else 0)
        worst = result if before is None or _RANK[result["outcome"]] > _RANK[before["outcome"]] else before
        self._results[report.nodeid] = {**worst, "duration": duration}
        tried = result.get("search") or (before or {}).get("search")
        if tried:  # what was tried in the call is told, whatever the teardown does
            self._results[report.nodeid]["search"] = tried

    def results(self) -> list[dict[str, Any]]:
        """In the order of their ids: workers report in any."""
        return [self._results[nodeid] for nodeid in sorted(self._results) if nodeid in self._finished]

    def unheard(self) -> list[str]:
        """The ids that were collected, and of which no end has been reported."""
        return sorted(self._expected - self._finished)

    @property
    def deselected(self) -> int:
        return len(self._deselected)

    def _is_mine(self, nodeid: str) -> bool:
        return nodeid.startswith(f"{self.root}/")

    def count(self, outcome: str) -> int:
        return sum(result["outcome"] == outcome for result in self.results())
