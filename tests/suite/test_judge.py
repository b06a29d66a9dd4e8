"""What an outcome means: levels, known issues, and skips that a gate does not accept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_tensorizer.options import Settings
from pytest_tensorizer.suite.check import Check
from pytest_tensorizer.suite.judge import ATTRIBUTE, Judge
from pytest_tensorizer.suite.known_issues import KnownIssue
from pytest_tensorizer.suite.skips import Skip
from pytest_tensorizer.suite.subjects import Subject

SETTINGS = Settings(
    conformance=True, format=(), engine="", prompt_embeds="", model="", device="cpu", strict=False, known_issues="",
    require=("curl",), fuzz="", s3_endpoint="", s3_credentials="", fresh_process=False, fresh_process_preload="",
    accelerator_guard="", explicit=frozenset(),
)  # fmt: skip
SUBJECT = Subject("format", "lossy", "1.5", "mine:Lossy")
CHECK = Check("storage/write", "must", "format:lossy", "local")
ISSUE = KnownIssue("L1", ("storage/*",), "lossy<2", "The last tensor is lost.", "loss", None, (), "issues.toml", 4)


def _judge(
    outcome: Any, when: Any = "call", *, level: str = "must", strict: bool = False, issues: Any = (), value: Any = None
) -> tuple[pytest.TestReport, dict[str, Any]]:
    longrepr: Any = "\nAssertionError: the last is missing\nmore" if outcome == "failed" else None
    report = pytest.TestReport("root/test_x.py::test_y", ("", 1, ""), {}, outcome, longrepr, when, duration=0.5)
    judge = Judge(SETTINGS._replace(strict=strict), list(issues))
    assert judge.judge(report, replace(CHECK, level=level), SUBJECT, value) is report
    return report, getattr(report, ATTRIBUTE)


def test_what_passes_passes() -> None:
    report, result = _judge("passed")
    assert report.outcome == result["outcome"] == "passed"
    assert result["id"] == "storage/write[local]@format:lossy"
    assert (result["area"], result["version"], result["target"]) == ("storage", "1.5", "mine:Lossy")
    # execnet, which carries it between workers, takes nothing else.
    assert all(type(value) in (str, float, bool, int) for value in result.values())


def test_what_must_not_fail() -> None:
    report, result = _judge("failed")
    assert report.outcome == result["outcome"] == "failed"
    assert result["message"] == "the last is missing"


@pytest.mark.parametrize("level", ["must", "should", "info"])
@pytest.mark.parametrize("strict", [False, True])
def test_levels(level: str, strict: bool) -> None:
    report, result = _judge("failed", level=level, strict=strict)
    if level == "must" or (level == "should" and strict):
        assert report.outcome == result["outcome"] == "failed"
    else:
        assert (report.outcome, result["outcome"]) == ("skipped", "advice")
        assert report.wasxfail == f"{level}: the last is missing"


@pytest.mark.parametrize("when", ["setup", "teardown"])
def test_a_fixture_that_fails_is_an_error_whatever_is_known(when: str) -> None:
    report, result = _judge("failed", when, level="should", issues=[ISSUE])
    assert (report.outcome, result["outcome"]) == ("failed", "error")


def test_a_known_issue() -> None:
    report, result = _judge("failed", issues=[ISSUE])
    assert (report.outcome, result["outcome"], result["known_issue"]) == ("skipped", "known", "L1")
    assert report.wasxfail == "known issue L1: The last tensor is lost."
    assert _judge("failed", issues=[replace(ISSUE, applies="lossy<1")])[1]["outcome"] == "failed"
    assert _judge("failed", issues=[replace(ISSUE, checks=("storage/read",))])[1]["outcome"] == "failed"


def test_a_known_issue_that_passes() -> None:
    report, result = _judge("passed", issues=[ISSUE])
    assert report.outcome == result["outcome"] == "failed"
    assert result["message"] == report.longreprtext
    assert result["message"].startswith("[stale] known issue L1 says that this fails with lossy<2, and it passed")
    assert "issues.toml, line 4" in result["message"]
    assert _judge("passed", "setup", issues=[ISSUE])[0].outcome == "passed"
    assert _judge("skipped", "setup", issues=[ISSUE])[0].outcome == "skipped"


def test_skips() -> None:
    report, result = _judge("skipped", value=Skip("capability", "curl", "lossy does not claim curl"))
    assert (report.outcome, result["skip"], result["missing"]) == ("skipped", "capability", "curl")
    report, result = _judge("skipped", value=Skip("requirement", "libsodium", "libsodium is missing"))
    assert (report.outcome, result["skip"], result["message"]) == ("skipped", "requirement", "libsodium is missing")
    report, result = _judge("skipped", "setup", value=pytest.skip.Exception("not on Tuesdays"))
    assert (report.outcome, result["skip"]) == ("skipped", "other")
    report, result = _judge("skipped", "setup", value=Skip("requirement", "curl", "curl is missing"), issues=[ISSUE])
    assert (report.outcome, result["outcome"]) == ("failed", "error")
    assert result["message"] == "curl is missing (and --tensorizer-require=curl says that it must be there)"


def test_levels_and_requirements_in_a_run(repository: Any) -> None:
    named = "tensorizer-conformance/test_storage.py::test_missing_named[mute-local]"
    mute = ["--tensorizer-format=mine:Mute", named]
    advice = repository.run(*mute)
    assert (advice.status, advice.outcomes) == (0, {"xfailed": 1})
    assert "ADVICE  storage/missing-named  mute  [local]" in advice.summary
    strict = repository.run(*mute, "--tensorizer-strict")
    assert (strict.status, strict.outcomes) == (1, {"failed": 1})
    assert f"pytest --tensorizer-conformance {mute[0]} --tensorizer-strict '{named}'" in strict.summary

    needy = ["--tensorizer-format=mine:Needy", "tensorizer-conformance/test_storage.py::test_missing[needy-s3]"]
    skipped = repository.run(*needy)
    assert (skipped.status, skipped.outcomes) == (0, {"skipped": 1})
    assert "1 for want of no-such-program (--tensorizer-require=no-such-program makes them fail)" in skipped.summary
    assert "INCOMPLETE: no check ran" in skipped.summary
    other = repository.run(*needy, "--tensorizer-require=curl")
    assert (other.status, other.outcomes) == (0, {"skipped": 1})
    required = repository.run(*needy, "--tensorizer-require=curl", "--tensorizer-require=no-such-program")
    assert (required.status, required.outcomes) == (1, {"failed": 1})
    assert "NOT PASSED: 1 REQUIRED CHECK FAILS" in required.summary
