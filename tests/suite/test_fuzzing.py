"""--tensorizer-fuzz: which checks search for how long, what is refused, and what is left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from pytest_tensorizer.process.limits import zygotes_are_available
from pytest_tensorizer.suite.check import Check
from pytest_tensorizer.suite.fuzzing import shares

PROPERTIES = "tensorizer-conformance/test_properties.py"
STORAGE = "tensorizer-conformance/test_storage.py"
MINE = "--tensorizer-format=mine:Mine"
FORKS = pytest.mark.skipif(not zygotes_are_available(), reason="examples are tried in forks, with pidfds")
# What is found in one of them, if it is given enough time, is the same in each run; in the other there is nothing.
FORMATS = """
import hashlib, io, os, pathlib, torch
from pytest_tensorizer.formats.torch import TorchFormat

class Dies(TorchFormat):
    name = "dies"

    def load(self, source, **options):
        try:
            return super().load(source, **options)
        except RuntimeError:
            os.abort()

class Sealed(TorchFormat):
    name, capabilities = "sealed", TorchFormat.capabilities | {"verify"}

    def save(self, tensors, target):
        buffer = io.BytesIO()
        torch.save(dict(tensors), buffer)
        data = buffer.getvalue()
        pathlib.Path(target).write_bytes(hashlib.sha256(data).digest() + data)

    def load(self, source, verify_hash=True):
        data = pathlib.Path(source).read_bytes()
        if hashlib.sha256(data[32:]).digest() != data[:32]:
            raise ValueError("the seal is broken")
        return super().load(io.BytesIO(data[32:]))
"""
DIES, SEALED = ("--tensorizer-format=weak:Dies", "--tensorizer-format=weak:Sealed")
DAMAGED = f"{PROPERTIES}::test_damaged_file"
LONG = 120.0
"""Seconds within which what is waited for has come, however slow the machine is."""


# Shares


def _checks(*ids: str) -> dict[str, Check]:
    return {f"{number}::{id}": Check(id, "must", "format:mine", "") for number, id in enumerate(ids)}


def test_areas_have_the_same_share_and_checks_that_of_their_area() -> None:
    found = shares(_checks("roundtrip/a", "roundtrip/b", "modules/a", "roundtrip/c"), 60, 1)
    assert found == {"0::roundtrip/a": 10, "1::roundtrip/b": 10, "2::modules/a": 30, "3::roundtrip/c": 10}
    assert sum(found.values()) == 60


def test_workers_search_at_the_same_time() -> None:
    checks = _checks("roundtrip/a", "roundtrip/b", "modules/a", "integrity/a", "prompt-embeds/a")
    alone, four = shares(checks, 60, 1), shares(checks, 60, 4)
    assert sum(alone.values()) == 60
    assert {name: 4 * seconds for name, seconds in alone.items()} == four


def test_no_check_searches_for_longer_than_was_asked_for() -> None:
    assert shares(_checks("roundtrip/a"), 60, 8) == {"0::roundtrip/a": 60}
    found = shares(_checks("modules/a", "roundtrip/a", "roundtrip/b"), 60, 3)
    assert found == {"0::modules/a": 60, "1::roundtrip/a": 45, "2::roundtrip/b": 45}
    assert shares({}, 60, 2) == {}


# What is refused


@pytest.mark.parametrize("value", ["", "abc", "0", "-1", "nan", "inf", "1e9", "1m", " "])
def test_seconds_that_make_no_sense(repository: Any, value: str) -> None:
    told = f"--tensorizer-fuzz={value}: give seconds, a number above 0 and up to 864000"
    repository.run(MINE, f"--tensorizer-fuzz={value}").assert_refused(told)


def test_the_ini_file_is_read_as_the_command_line_is(repository: Any) -> None:
    ini = repository.write("pytest.ini", "[pytest]\ntensorizer_fuzz = soon\n")
    result = repository.pytester.runpytest_inprocess(MINE)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --tensorizer-fuzz=soon: give seconds*"])
    ini.write_text("[pytest]\ntensorizer_fuzz = 7\n")
    listed = repository.pytester.runpytest_inprocess(MINE, "--co", "-q")
    listed.stdout.fnmatch_lines([f"{PROPERTIES}::test_any_payload"])


def test_where_examples_cannot_be_tried(repository: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_tensorizer.suite.fuzzing.zygotes_are_available", lambda: False)
    repository.run(MINE, "--tensorizer-fuzz=5").assert_refused("--tensorizer-fuzz", "it needs Linux")
    # The gate skips those checks by name, which is nothing to refuse a run for.
    assert repository.run(MINE, PROPERTIES, "--co", "-q").status == 0


NONE = ("--tensorizer-fuzz: no check that searches is selected", PROPERTIES)


@FORKS
@pytest.mark.parametrize(
    "arguments",
    [["-k", "nothing"], [f"{STORAGE}::test_write"], [PROPERTIES, "--deselect", PROPERTIES]],
    ids=["-k", "path", "--deselect"],
)
def test_nothing_to_search(repository: Any, arguments: list[str]) -> None:
    repository.run(MINE, "--tensorizer-fuzz=5", *arguments).assert_refused(*NONE)


@FORKS
def test_nothing_to_search_for_workers(repository: Any) -> None:
    repository.run_apart(MINE, "--tensorizer-fuzz=5", "-k", "nothing", "-n", "2").assert_refused(*NONE)


# What is selected


def _listed(result: Any) -> list[str]:
    return [line for line in result.outlines if "::" in line]


@FORKS
def test_alone_it_runs_the_checks_that_search(repository: Any) -> None:
    repository.write("test_own.py", "def test_own(): pass\n")
    repository.write("pytest.ini", "[pytest]\ntestpaths = .\n")
    result = repository.pytester.runpytest_inprocess(MINE, "--tensorizer-fuzz=5", "--co", "-q")
    names = [f"{PROPERTIES}::test_any_{name}" for name in ("state_dict[mine]", "module[mine]", "payload")]
    assert sorted(_listed(result)) == sorted([*names, f"{DAMAGED}[mine]"])


@FORKS
def test_with_the_suite_what_searches_the_longest_comes_first(repository: Any) -> None:
    arguments = [MINE, SEALED, PROPERTIES, f"{STORAGE}::test_write", "--co", "-q"]
    repository.write("weak.py", FORMATS)
    gate = repository.run(*arguments).out.splitlines()
    found = repository.run(*arguments, "--tensorizer-fuzz=60").out.splitlines()
    ids, searching = [[line for line in lines if "::" in line] for lines in (gate, found)]
    assert sorted(ids) == sorted(searching)
    assert searching[0] == f"{PROPERTIES}::test_any_payload", "the one check of its area; the others have two"
    assert [id.startswith(PROPERTIES) for id in searching] == [True] * 7 + [False] * (len(ids) - 7)


@FORKS
def test_to_list_nothing_is_not_refused(repository: Any) -> None:
    run = repository.run(MINE, "--tensorizer-fuzz=5", "--co", "-k", "nothing")
    assert run.status == pytest.ExitCode.NO_TESTS_COLLECTED


# Searching


@pytest.fixture
def temporary(repository: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files of the processes that are started. There are the formats, too."""
    repository.write("weak.py", FORMATS)
    path: Path = repository.path / "temporary"
    path.mkdir()
    monkeypatch.setenv("TMPDIR", str(path))
    return path


@FORKS
def test_what_is_found_is_told_and_becomes_a_file(repository: Any, temporary: Path) -> None:
    """With workers, each of which has a check: there is something to find in one format, and nothing in the other."""
    # The first example takes a busy machine seconds, as Hypothesis starts.
    run = repository.run_apart(DIES, SEALED, DAMAGED, "--tensorizer-fuzz=15", "-n", "2")
    assert run.status == 1, run.out + run.errors
    fault = "died of SIGABRT in weak.py:load"

    live = rf"^fuzz: integrity/damaged-file@format:dies: {fault}\n      see (tensorizer-findings/.*\.py)$"
    (seen,) = re.findall(live, run.out, re.MULTILINE)
    progress = re.findall(
        r"^fuzz: \d+ of 15 s, ([\d,]+) examples(?:, [\d,]+ a second)?, (\d) .*$", run.out, re.MULTILINE
    )
    assert progress[-1][1] == "1", run.out

    tried = re.search(r"^Tried: ([\d,]+) examples, 1 distinct failure$", run.summary, re.MULTILINE)
    assert tried is not None, run.summary
    each = re.findall(r"^  integrity/damaged-file  (\w+) +([\d,]+) in \d+ s", run.summary, re.MULTILINE)
    assert [name for name, _ in each] == ["dies", "sealed"]
    total = _number(tried[1])
    assert total == sum(_number(count) for _, count in each)
    # The last line that was shown meanwhile has all of them.
    assert _number(progress[-1][0]) == total
    assert run.outcomes == {"passed": 1, "failed": 1}
    assert "NOT PASSED: 1 REQUIRED CHECK FAILS" in run.summary
    assert "--tensorizer-fuzz=15" in run.summary.partition("FAILS ")[2], "the command that runs it again searches, too"

    (path,) = (repository.path / "tensorizer-findings").iterdir()
    named = f"tensorizer-findings/{path.name}"
    assert seen == named
    assert f"To reproduce it: python -m pytest {named}\n" in run.out
    again = repository.pytester.run(sys.executable, "-m", "pytest", named)
    again.assert_outcomes(failed=1)
    assert "SIGABRT" in again.stdout.str()

    assert _left(temporary) == []


@FORKS
def test_where_nothing_is_found_nothing_is_written(repository: Any, temporary: Path) -> None:
    run = repository.run(SEALED, f"{DAMAGED}[sealed]", "--tensorizer-fuzz=1")
    assert (run.status, run.outcomes) == (0, {"passed": 1}), run.out
    assert re.search(r"^Tried: [\d,]+ examples, 0 distinct failures$", run.summary, re.MULTILINE)
    assert "PASSED: EVERY REQUIRED CHECK PASSES, OF THE PART THAT WAS ASKED FOR" in run.summary
    assert not (repository.path / "tensorizer-findings").exists()
    # Of this process, which is not told of the other place.
    assert "PYTEST_TENSORIZER_FUZZ_PROGRESS" not in os.environ


@FORKS
def test_ctrl_c_ends_a_search_with_what_was_found(repository: Any, temporary: Path) -> None:
    # Known by a variable: what it has started may have other parents and sessions by the time that it has ended.
    mark = f"PYTEST_TENSORIZER_MARK={repository.path}"
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", DIES, f"{DAMAGED}[dies]", "--tensorizer-fuzz=600"],
        cwd=repository.path, env=dict([*os.environ.items(), mark.split("=", 1)]),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        # A shell starts what it puts into the background deaf to Ctrl-C, and its children with it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    # So that a line that does not come fails this test, and hangs nothing.
    guard = threading.Timer(LONG, process.kill)
    guard.start()
    try:
        assert process.stdout is not None
        before = [next(process.stdout)]
        while not re.match(r"fuzz: \d+ of 600 s, ", before[-1]):
            before.append(next(process.stdout))
        assert len(_processes(mark)) > 1
        process.send_signal(signal.SIGINT)
        after = process.stdout.read()
        assert process.wait() == pytest.ExitCode.INTERRUPTED, after
    finally:
        guard.cancel()
        process.kill()
        process.wait()
    assert _processes(mark) == []
    assert _left(temporary) == []
    assert "Traceback" not in after
    # The last line tells what was tried, as each one before it.
    assert re.search(r"^fuzz: \d+ of 600 s, [\d,]+ examples, [\d,]+ a second, 1 distinct failure$", after, re.MULTILINE)
    assert len([*(repository.path / "tensorizer-findings").glob("*.py")]) == 1


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _left(temporary: Path) -> list[str]:
    """All but what pytest keeps of its last runs, and torch's directory for what it compiles."""
    return [path.name for path in temporary.iterdir() if not path.name.startswith(("pytest-of-", "torchinductor_"))]


def _processes(mark: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (path / "environ").read_bytes().split(b"\0"):
                found.append(path.name)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it has ended meanwhile, or is another user's
    return found
