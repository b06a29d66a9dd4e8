"""The profiles: by name on the command line, at no cost for who does not ask for one, and the same on any server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
from hypothesis import given, settings, strategies as st

SEEN = []

@given(st.integers())
def draws(number):
    SEEN.append(number)

def test_it():
    draws()
    profile = settings()
    print(f"profile: {profile.max_examples} {profile.derandomize} {profile.database is None} {profile.deadline}")
    print(f"seen: {hash(tuple(SEEN))}")
"""


def told(directory: Path, *arguments: str, **variables: str) -> dict[str, str]:
    """What the test has printed, by label."""
    (directory / "test_it.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", *arguments],
        cwd=directory, env={**os.environ, **variables}, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(line.split(": ", 1) for line in done.stdout.splitlines() if line.startswith(("profile", "seen")))


def test_the_gate_draws_the_same_in_every_run(tmp_path: Path) -> None:
    runs = [told(tmp_path, "--hypothesis-profile=tensorizer-ci") for _ in range(2)]
    assert runs[0] == runs[1]
    assert runs[0]["profile"] == "100 True True None"
    assert not (tmp_path / ".hypothesis" / "examples").exists()


@pytest.mark.parametrize("server", ["", "true"])
def test_a_search_draws_others_in_each(tmp_path: Path, server: str) -> None:
    """Also on a CI server, where Hypothesis' own default profile draws the same in every run."""
    runs = [told(tmp_path, "--hypothesis-profile=tensorizer-fuzz", CI=server) for _ in range(2)]
    assert runs[0]["seen"] != runs[1]["seen"]
    assert {run["profile"] for run in runs} == {"1000 False False None"}


def test_who_asks_for_none_gets_hypothesis_own(tmp_path: Path) -> None:
    own = told(tmp_path, "-p", "no:tensorizer", CI="")
    assert told(tmp_path, CI="")["profile"] == own["profile"]


def test_who_asks_for_none_imports_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import sys\n\ndef test_it():\n    assert 'torch' not in sys.modules\n"
        "    assert not [name for name in sys.modules if name.startswith('pytest_tensorizer.strategies')]\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout


def test_a_profile_of_ones_own_is_left_to_hypothesis(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "from hypothesis import settings\nsettings.register_profile('mine', max_examples=7)\n"
    )
    assert told(tmp_path, "--hypothesis-profile=mine")["profile"].startswith("7 ")
