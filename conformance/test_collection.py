"""What this repository's own tests do to the process that collects them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from pytest_tensorizer.accelerator_guard_pytest import ADVICE
from pytest_tensorizer.suite.check import check
from pytest_tensorizer.suite.skips import not_claimed
from pytest_tensorizer.suite.subjects import REPOSITORY


@check("collection/no-accelerator", subject="repository", level="should")
@pytest.mark.fresh_process(timeout=600)
def test_no_accelerator(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    """Collecting this repository's tests, as plain `pytest` does, touches no accelerator.

    A process that has touched the driver cannot fork for the GPU, and holds memory there while the tests run. It is
    the accelerator guard that looks, so torch need not be built for one.
    """
    config = [] if pytestconfig.inipath is None else ["-c", str(pytestconfig.inipath)]
    # With the flag of the suite among them, the tests would not be collected.
    options = shlex.join(option for option in pytestconfig.getini("addopts") if option != "--tensorizer-conformance")
    command = [
        *(sys.executable, "-m", "pytest", "--collect-only", "-q", "-n0", "-p", "no:cacheprovider"),
        *("--accelerator-guard=error", "-o", f"addopts={options}", "-o", "tensorizer_conformance=false"),
        *("--continue-on-collection-errors", f"--rootdir={pytestconfig.rootpath}", *config),
        f"--junitxml={tmp_path / 'collected.xml'}",
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=pytestconfig.rootpath, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    print(done.stdout)
    if not (tmp_path / "collected.xml").exists():
        not_claimed(REPOSITORY, "tests", f"`pytest --collect-only` ends with {done.returncode}: see its output")
    if done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED:
        not_claimed(REPOSITORY, "tests", "no test was collected")
    errors = ["".join(tag.itertext()) for tag in ElementTree.parse(tmp_path / "collected.xml").iter("error")]
    touches = [error.partition(ADVICE)[0].strip() for error in errors if ADVICE in error]
    if touches:
        pytest.fail("\n".join([*touches, ADVICE]), pytrace=False)
