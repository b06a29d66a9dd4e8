"""The suite's verdict is the same with and without workers, and green only where every check was heard of."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
import torch

from pytest_tensorizer.suite.run import _spread

STORAGE = "tensorizer-conformance/test_storage.py"
MODULES = "tensorizer-conformance/test_modules.py"
MINE = "--tensorizer-format=mine:Mine"
RECORD = """
import json, pathlib

HEARD = {}

def pytest_runtest_logreport(report):
    result = report.tensorizer_result
    if report.when == "call" or report.outcome != "passed":
        HEARD[report.nodeid] = [report.outcome, {k: v for k, v in result.items() if k != "duration"}]

def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):
        pathlib.Path(session.config.rootpath, "heard.json").write_text(json.dumps(HEARD))
"""


def test_spreading_slow_checks() -> None:
    class Item:
        def __init__(self, name: str) -> None:
            self.name = name

        def get_closest_marker(self, marker: str) -> bool:
            return self.name.startswith("slow")

    items: Any = [Item(name) for name in ("slow1", "slow2", "a", "b", "c", "d")]
    assert [item.name for item in _spread(items)] == ["slow1", "a", "b", "slow2", "c", "d"]
    assert _spread(items[2:]) == items[2:]


def _heard(repository: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((repository.path / "heard.json").read_text())
    return found


def test_workers_change_nothing(repository: Any) -> None:
    # Runtest hooks of a conftest are for tests below it; those of a plugin are for all.
    repository.write("conftest.py", "pytest_plugins = ['recorder']\n")
    repository.write("recorder.py", RECORD)
    repository.pytester.syspathinsert(repository.path)
    formats = [f"--tensorizer-format={name}" for name in ("mine:Lossy", "mine:Mute", "safetensors")]
    # An optimizer imports torch._dynamo, which this process can import once only.
    arguments = [*formats, STORAGE, MODULES, "-k", "not s3 and not wrong_cred and not optimizer"]
    alone = repository.run(*arguments)
    expected = _heard(repository)
    assert len(expected) == 12 + 33
    assert alone.outcomes == {"passed": 20, "skipped": 22, "failed": 2, "xfailed": 1, "deselected": 18}, alone.out
    workers = repository.run_apart(*arguments, "-n", "2")
    assert workers.status == alone.status == 1
    assert _heard(repository) == expected
    assert workers.summary.splitlines()[1:-1] == alone.summary.splitlines()[1:-1]


@pytest.mark.parametrize("wrong", ["override", "id"])
def test_what_only_workers_see_is_told_once(repository: Any, wrong: str) -> None:
    """The controller of xdist collects nothing, so it cannot know."""
    if wrong == "override":
        repository.write(
            "conftest.py",
            "import pytest, mine\n@pytest.fixture\ndef tensorizer_formats(): return [mine.Mine(), mine.Mine()]\n",
        )
        repository.run_apart(STORAGE, "-n", "2").assert_refused("two formats are called 'mine'")
    else:
        run = repository.run_apart(MINE, f"{STORAGE}::test_nope", "-n", "1")
        run.assert_refused(f"{STORAGE}::test_nope", "no such test")


def test_a_worker_that_dies_is_a_failure(repository: Any) -> None:
    repository.write(
        "conftest.py",
        "import os\ndef pytest_runtest_protocol(item):\n    if item.name == 'test_read[mine-local]': os._exit(9)\n",
    )
    named = [f"{STORAGE}::test_{name}[mine-local]" for name in ("write", "read", "missing")]
    run = repository.run_apart(MINE, *named, "-n", "1")
    assert run.status == 1
    assert "FAILS   test_storage.py::test_read[mine-local]" in run.summary
    assert "worker 'gw0' crashed while running" in " ".join(run.summary.split())
    assert f"pytest --tensorizer-conformance {MINE} '{named[1]}'" in run.summary
    assert "1 error, 2 passed" in run.summary
    assert "NOT PASSED: 1 REQUIRED CHECK FAILS" in run.summary


def test_an_isolated_test_of_ones_own_beside_the_suite(repository: Any) -> None:
    """Its clean process has the same subjects, and none of the suite."""
    repository.write(
        "test_own.py",
        "import os, pytest\n"
        "@pytest.mark.fresh_process(method='spawn')\n"
        "def test_own(tensorizer_format):\n"
        f"    assert tensorizer_format.name == 'mine' and os.getpid() != {os.getpid()}\n",
    )
    run = repository.run(MINE, "test_own.py", f"{STORAGE}::test_write[mine-local]")
    assert run.outcomes == {"passed": 2}, run.out


def test_the_checks_can_be_imported(repository: Any) -> None:
    """By those who prefer that to the option, or do both; it is no news to pytest, whose warnings are errors here."""
    repository.write("conftest.py", "import pytest_tensorizer.conformance.test_storage\n")
    repository.write("test_own.py", "from pytest_tensorizer.conformance.test_storage import *\n")
    arguments = ["-W", "error::pytest.PytestWarning", "-k", "write and local", MINE, "test_own.py"]
    run = repository.run_apart(*arguments, f"{STORAGE}::test_write")
    assert run.outcomes == {"passed": 2, "deselected": 9}, run.out + run.errors


UNHEARD = """
import pytest
import torch

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    return True if "read" in item.name else None
"""


def test_a_check_that_was_collected_and_not_heard_of_is_not_green(repository: Any) -> None:
    repository.write("conftest.py", UNHEARD)
    named = [f"{STORAGE}::test_{name}[mine-local]" for name in ("write", "read", "missing")]
    run = repository.run(MINE, *named)
    assert run.status == pytest.ExitCode.TESTS_FAILED
    assert "INCOMPLETE: 1 not run, what ran has passed" in run.summary
    # To list the checks is not to run them.
    assert repository.run(MINE, *named, "--co").status == 0


def test_stopping_early_is_not_green(repository: Any) -> None:
    named = [f"{STORAGE}::test_{name}[lossy-local]" for name in ("write", "missing")]
    run = repository.run("--tensorizer-format=mine:Lossy", *named, "-x")
    assert run.status == pytest.ExitCode.INTERRUPTED or run.status == pytest.ExitCode.TESTS_FAILED
    assert "NOT PASSED: 1 REQUIRED CHECK FAILS" in run.summary


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--tensorizer-device=gpu"], ("--tensorizer-device", "'gpu' is no device", "auto, cpu, cuda or cuda:N")),
        (["--tensorizer-device=cpu", "--tensorizer-require=cuda"], ("--tensorizer-require=cuda", "CPU")),
        (["--tensorizer-model=nowhere"], ("--tensorizer-model", "no checkpoint directory", "nowhere")),
        (["--tensorizer-s3-endpoint=http://127.0.0.1:1"], ("--tensorizer-s3-credentials=ID_VAR:SECRET_VAR",)),
        (
            ["--tensorizer-s3-endpoint=http://127.0.0.1:1", "--tensorizer-s3-credentials=NO_SUCH_ID:NO_SUCH_SECRET"],
            ("'NO_SUCH_ID' is not set",),
        ),
    ],
)
def test_options_that_make_no_sense(repository: Any, options: list[str], words: tuple[str, ...]) -> None:
    repository.run(MINE, f"{STORAGE}::test_write", *options).assert_refused(*words)


def test_checks_have_one_thread_and_other_tests_theirs(repository: Any) -> None:
    repository.write(
        "counting.py",
        "import torch, mine\n"
        "class Counting(mine.Mine):\n"
        "    name = 'counting'\n"
        "    def save(self, tensors, target):\n"
        "        assert torch.get_num_threads() == 1\n"
        "        super().save(tensors, target)\n",
    )
    repository.write(
        "test_own.py",
        "import torch\n"
        "torch.set_num_threads(3)\n"
        "def test_own():\n"
        "    assert torch.get_num_threads() == 3\n",
    )  # fmt: skip
    before = torch.get_num_threads()
    try:
        result = repository.run("--tensorizer-format=counting:Counting", f"{STORAGE}::test_write", "test_own.py")
        assert torch.get_num_threads() == 3, "they are given back"
    finally:
        torch.set_num_threads(before)
    assert (result.status, result.outcomes) == (0, {"passed": 3})
