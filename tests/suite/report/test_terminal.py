"""The summary fits the terminal, says what conforms, and has commands that run what failed again."""

from __future__ import annotations

import re
import shlex
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_tensorizer.suite.collect import Selection
from pytest_tensorizer.suite.known_issues import KnownIssue
from pytest_tensorizer.suite.report.gather import Gatherer
from pytest_tensorizer.suite.report.terminal import _wrapped, lines, rerun

WIDTHS = [40, 60, 80, 120]
LONG = "a-format-with-a-name-that-no-terminal-would-like-to-show"
ISSUE = KnownIssue(
    "S1", ("roundtrip/lazy-views",), "safetensors<=0.8.0", "Conjugate views are saved with the bits below.",
    "silent", "https://github.com/safetensors/safetensors/issues/831", (), "known_issues.toml", 1,
)  # fmt: skip


def _run(**settings: Any) -> Any:
    values: dict[str, Any] = {
        "conformance": True, "device": "cpu", "explicit": frozenset(name.replace("_", "-") for name in settings),
        "format": (), "engine": "", "prompt_embeds": "", "model": "", "strict": False, "known_issues": "",
        "require": (), "s3_endpoint": "", "s3_credentials": "",
    }  # fmt: skip
    selection = Selection(("tensorizer-conformance",))
    return SimpleNamespace(settings=SimpleNamespace(**{**values, **settings}), issues=[ISSUE], selection=selection)


def _gathered(*results: dict[str, Any], unheard: int = 0, deselected: int = 0) -> Gatherer:
    gatherer = Gatherer("tensorizer-conformance")
    for number, result in enumerate(results):
        nodeid = f"tensorizer-conformance/test_x.py::test_y[{number}]"
        values = {
            "area": "roundtrip", "check": "roundtrip/bits", "subject": "format:mine", "version": "1.5", "case": "",
            "message": "", "nodeid": nodeid, **result,
        }  # fmt: skip
        gatherer._results[nodeid] = values
        gatherer._finished.add(nodeid)
    gatherer.expect(f"tensorizer-conformance/unheard.py::test_{number}" for number in range(unheard))
    gatherer.deselect(f"tensorizer-conformance/deselected.py::test_{number}" for number in range(deselected))
    return gatherer


def _text(gathered: Gatherer, run: Any = None, *, exitstatus: int = 0, width: int = 80) -> str:
    return "\n".join(text for text, _ in lines(gathered, run or _run(), exitstatus, width))


EVERYTHING = _gathered(
    {"outcome": "passed"},
    {"outcome": "failed", "case": "float4_e2m1fn_x2-empty-contiguous", "message": "'weight' differs " * 9 + "x" * 150},
    {"outcome": "failed", "case": "float64"},
    {
        "outcome": "passed",
        "subject": f"format:{LONG}",
        "version": "1.0.0.dev20260101+g1234567.a.very.long.version.indeed",
    },
    {"outcome": "error", "subject": "", "area": "suite", "check": f"test_x.py::{'y' * 90}", "message": "worker died"},
    {"outcome": "known", "subject": "format:safetensors", "version": "0.8.0", "known_issue": "S1"},
    {"outcome": "advice", "subject": "engine:transformers", "area": "outputs", "check": "outputs/a", "message": "slow"},
    {"outcome": "skipped", "skip": "capability", "missing": "lazy"},
    {"outcome": "skipped", "skip": "requirement", "missing": "libsodium", "subject": "format:other", "version": "3"},
    {"outcome": "skipped", "skip": "other"},
    unheard=1,
    deselected=1,
)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    text = _text(EVERYTHING, width=width)
    wide = [line for line in text.splitlines() if len(line) > width]
    assert all(line.strip().startswith("pytest --tensorizer-conformance") for line in wide), wide
    assert "\n\n\n" not in text


def test_the_matrix() -> None:
    text = _text(EVERYTHING, width=200)
    names = "a-format-with-a-name-that-no-terminal-would-like-to-show +mine +other +safetensors +transformers"
    assert re.search(f"^ +{names}$", text, re.MULTILINE)
    assert re.search(r"^roundtrip +1 +2 FAILED of 3 +skipped +1 known of 1 +-$", text, re.MULTILINE)
    assert re.search(r"^outputs .*1 advice of 1", text, re.MULTILINE)
    assert not re.search(r"^suite +[0-9-]+ ", text, re.MULTILINE)


def test_issues_skips_and_failures_are_told() -> None:
    text = " ".join(_text(EVERYTHING).split())
    assert "S1 silent safetensors<=0.8.0: Conjugate views" in text
    assert "[1x] https://github.com/safetensors/safetensors/issues/831 " in text
    want = "1 for want of libsodium (--tensorizer-require=libsodium makes them fail)"
    assert f"1 not claimed by the subject (lazy), {want}" in text
    assert "1 by a mark or a skip of their own" in text
    assert "FAILS roundtrip/bits mine [float4_e2m1fn_x2-empty-contiguous] and 1 more" in text
    assert "ADVICE outputs/a transformers" in text
    assert "2 failed, 1 error, 1 advice, 1 known, 2 passed, 3 skipped" in text


@pytest.mark.parametrize(
    ("gathered", "exitstatus", "verdict"),
    [
        (_gathered({"outcome": "passed"}), 0, "PASSED: EVERY REQUIRED CHECK PASSES"),
        (_gathered({"outcome": "advice"}, {"outcome": "passed"}), 0, "PASSED: EVERY REQUIRED CHECK PASSES"),
        (
            _gathered({"outcome": "known", "known_issue": "S1"}),
            0,
            "PASSED: EVERY REQUIRED CHECK PASSES OR IS A KNOWN ISSUE",
        ),
        (_gathered({"outcome": "failed"}), 1, "NOT PASSED: 1 REQUIRED CHECK FAILS"),
        (_gathered({"outcome": "failed"}, {"outcome": "error"}, unheard=3), 1, "NOT PASSED: 2 REQUIRED CHECKS FAIL"),
        (_gathered({"outcome": "passed"}), 1, "NOT PASSED: pytest ended with exit status 1"),
        (_gathered({"outcome": "passed"}, unheard=2), 0, "INCOMPLETE: 2 not run, what ran has passed"),
        (
            _gathered({"outcome": "passed"}, unheard=2, deselected=9),
            2,
            "INCOMPLETE: 2 not run, 9 deselected, what ran has passed",
        ),
        (_gathered({"outcome": "skipped", "skip": "other"}), 0, "INCOMPLETE: no check ran"),
        (_gathered(), 5, "INCOMPLETE: no check ran"),
    ],
)
def test_the_verdict_is_the_last_line(gathered: Gatherer, exitstatus: int, verdict: str) -> None:
    assert _text(gathered, exitstatus=exitstatus).splitlines()[-1] == verdict


def test_a_part_of_the_suite_is_called_one() -> None:
    run = _run()
    assert "PART" not in _text(_gathered({"outcome": "passed"}), run)
    run.selection = Selection(("tensorizer-conformance/test_x.py",))
    assert "PASSED: EVERY REQUIRED CHECK PASSES, OF THE PART THAT WAS ASKED FOR" in _text(
        _gathered({"outcome": "passed"}), run
    )


def test_wrapping() -> None:
    assert [text for text, _ in _wrapped("label  ", "one two-three", 16)] == ["label  one", "       two-three"]
    assert [text for text, _ in _wrapped("a long label  ", "one two", 16)] == ["a long label", "    one two"]
    assert {paint for _, paint in _wrapped("x ", "word " * 20, 20, "red")} == {"red"}
    assert list(_wrapped("label", "", 20)) == []


def test_the_command_has_what_was_set() -> None:
    nodeid = "tensorizer-conformance/test_x.py::test_y[a b]"
    result = {"nodeid": nodeid, "target": "mine:Mine"}
    assert rerun(result, _run()) == f"pytest --tensorizer-conformance '{nodeid}'"
    run = _run(format=("mine:Mine", "a b:C"), strict=True, known_issues="off", require=("curl",), engine="x:Y")
    words = shlex.split(rerun(result, run))
    assert words == [
        "pytest", "--tensorizer-conformance", "--tensorizer-format=mine:Mine",
        "--tensorizer-engine=x:Y", "--tensorizer-strict", "--tensorizer-known-issues=off", "--tensorizer-require=curl",
        nodeid,
    ]  # fmt: skip


def test_a_run_in_a_terminal(repository: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.write("pytest.ini", "[pytest]\ntensorizer_require = curl\n")
    repository.write("conftest.py", "")
    storage = "tensorizer-conformance/test_storage.py"
    formats = [f"--tensorizer-format={name}" for name in ("mine:Lossy", "mine:Mute", "tensorizer")]
    ids = [f"{storage}::test_{test}[{case}]" for test, case in (
        ("write", "lossy-local"), ("read", "lossy-local"), ("write", "mute-local"), ("missing_named", "mute-local"),
    )]  # fmt: skip
    ids += [f"tensorizer-conformance/test_modules.py::test_{name}" for name in ("ties", "weights", "kinds")]
    monkeypatch.setenv("COLUMNS", "60")
    run = repository.run(*formats, "--color=no", *ids)
    assert run.status == 1
    assert "\x1b" not in run.out
    wide = [line for line in run.summary.splitlines()[1:] if len(line) > 60]
    commands = [line.strip() for line in wide]
    assert commands
    assert all(command.startswith("pytest --tensorizer-conformance") for command in commands)
    assert "NOT PASSED: 2 REQUIRED CHECKS FAIL" in run.summary

    again = [repository.run(*shlex.split(command)[2:]).outcomes for command in commands]
    assert again == [{"xfailed": 1}, {"failed": 1}, {"failed": 1}]

    coloured = repository.run(*formats, "--color=yes", *ids)
    assert "\x1b[31m" in coloured.summary
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured.summary).splitlines()[1:-1] == run.summary.splitlines()[1:-1]
