"""One result for each check, and none without evidence."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_tensorizer.suite.judge import ATTRIBUTE
from pytest_tensorizer.suite.report.gather import Gatherer

ID = "root/test_x.py::test_y"


def _report(when: Any, outcome: Any = "passed", nodeid: str = ID, judged: str | None = "") -> pytest.TestReport:
    longrepr = "worker 'gw0' crashed\nmore" if outcome == "failed" else None
    report = pytest.TestReport(nodeid, ("", 1, ""), {}, outcome, longrepr, when, duration=1.0)
    if judged is not None:
        setattr(report, ATTRIBUTE, {"outcome": judged or outcome, "duration": 1.0, "nodeid": nodeid, "when": when})
    return report


def _gathered(*reports: pytest.TestReport) -> Gatherer:
    gatherer = Gatherer("root")
    gatherer.expect([ID, "tests/test_own.py::test_own"])
    for report in reports:
        gatherer.add(report)
    return gatherer


def test_the_worst_phase_counts() -> None:
    gathered = _gathered(_report("setup"), _report("call", "skipped", judged="known"), _report("teardown"))
    (result,) = gathered.results()
    assert (result["outcome"], result["when"], result["duration"]) == ("known", "call", 3.0)
    assert gathered.count("known") == 1
    assert gathered.count("passed") == 0
    assert gathered.unheard() == []

    broken = _gathered(_report("setup"), _report("call"), _report("teardown", "failed", judged="error"))
    assert [result["outcome"] for result in broken.results()] == ["error"]


def test_what_did_not_end_has_no_result() -> None:
    for reports in ([], [_report("setup")], [_report("setup"), _report("call")]):
        gathered = _gathered(*reports)
        assert gathered.results() == []
        assert gathered.unheard() == [ID]


def test_a_failure_ends_a_check() -> None:
    gathered = _gathered(_report("setup"), _report("call", "failed"))
    assert [result["outcome"] for result in gathered.results()] == ["failed"]
    assert gathered.unheard() == []
    gathered.add(_report("teardown"))
    assert len(gathered.results()) == 1


def test_a_failure_that_nobody_has_judged() -> None:
    """A worker that died, or a stale entry of the registry."""
    (result,) = _gathered(_report("???", "failed", judged=None)).results()
    assert (result["outcome"], result["check"], result["area"]) == ("error", "test_x.py::test_y", "suite")
    assert result["message"] == "worker 'gw0' crashed"
    assert result["nodeid"] == ID


def test_other_tests_are_not_counted() -> None:
    own = "tests/test_own.py::test_own"
    gathered = _gathered(_report("call", "failed", own, judged=None), _report("teardown", nodeid=own, judged=None))
    assert gathered.results() == []
    assert gathered.unheard() == [ID]
    gathered.deselect([own])
    assert gathered.deselected == 0


def test_workers_deselect_the_same() -> None:
    gathered = _gathered()
    gathered.deselect([ID, "root/test_x.py::test_z"])
    gathered.deselect([ID, "root/test_x.py::test_z"])
    assert gathered.deselected == 2
