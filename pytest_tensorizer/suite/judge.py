"""From what a test did to what it means: known issues, levels, and skips that a gate does not accept."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_tensorizer.options import Settings
from pytest_tensorizer.suite.check import Check
from pytest_tensorizer.suite.known_issues import KnownIssue
from pytest_tensorizer.suite.skips import Skip
from pytest_tensorizer.suite.subjects import Subject

ATTRIBUTE = "tensorizer_result"
"""Where a report carries its result: a dict of plain values, since execnet lets nothing else pass between workers."""


class Judge:
    """Decides on one report at a time. It changes outcomes only through what pytest itself knows: xfail and failure."""

    def __init__(self, settings: Settings, issues: list[KnownIssue]) -> None:
        self._settings = settings
        self._issues = issues

    def issue_for(self, check: Check, subject: Subject) -> KnownIssue | None:
        return next((issue for issue in self._issues if issue.concerns(subject) and issue.covers(check)), None)

    def judge(
        self, report: pytest.TestReport, check: Check, subject: Subject, value: BaseException | None
    ) -> pytest.TestReport:
        """Set outcome and result of `report`; `value` is the exception that the phase ended with."""
        issue = self.issue_for(check, subject)
        result: dict[str, Any] = {
            "id": check.key, "check": check.id, "area": check.area, "subject": check.subject, "case": check.case,
            "level": check.level, "nodeid": report.nodeid, "duration": report.duration,
            "version": subject.version, "target": subject.target, "outcome": report.outcome, "message": "",
        }  # fmt: skip
        if report.outcome == "failed":
            result["message"] = _first_line(report)
            if report.when != "call":
                result["outcome"] = "error"
            elif issue is not None:
                self._expect(report, result, "known", f"known issue {issue.id}: {issue.reason}")
                result["known_issue"] = issue.id
            elif check.level == "info" or (check.level == "should" and not self._settings.strict):
                self._expect(report, result, "advice", f"{check.level}: {result['message']}")
        elif report.outcome == "skipped":
            self._judge_skip(report, result, value)
        elif report.when == "call" and issue is not None:
            message = (
                f"[stale] known issue {issue.id} says that this fails with {issue.applies}, and it passed: remove "
                f"the entry at {issue.where}, narrow its version range, or take this case out of its `checks`"
            )
            report.outcome, report.longrepr = "failed", message
            result.update(outcome="failed", message=message)
        setattr(report, ATTRIBUTE, result)
        return report

    @staticmethod
    def _expect(report: pytest.TestReport, result: dict[str, Any], outcome: str, reason: str) -> None:
        report.outcome = "skipped"
        report.wasxfail = reason
        result["outcome"] = outcome

    def _judge_skip(self, report: pytest.TestReport, result: dict[str, Any], value: BaseException | None) -> None:
        if not isinstance(value, Skip):
            result["skip"] = "other"
            return
        result.update(skip=value.kind, missing=value.missing, message=value.msg or "")
        if value.kind == "requirement" and value.missing in self._settings.require:
            message = f"{value.msg} (and --tensorizer-require={value.missing} says that it must be there)"
            report.outcome, report.longrepr = "failed", message
            result.update(outcome="error", message=message)


def _first_line(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = getattr(crash, "message", None) or report.longreprtext
    line = next((line for line in text.splitlines() if line.strip()), "")
    for kind in ("AssertionError: ", "Failed: "):
        line = line.removeprefix(kind)
    return str(line).strip()[:500]
