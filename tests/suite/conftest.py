"""Small repositories in which the suite runs, in this process: torch, imported here, need not be imported again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import hypothesis  # noqa: F401 - its own plugin imports it at the end of any session
import pytest

# pytester forgets what a run in this process has imported. What is heavy, and what keeps state, is imported before.
import pytest_tensorizer.checkpoint
import pytest_tensorizer.engines.transformers
import pytest_tensorizer.formats.safetensors
import pytest_tensorizer.formats.tensorizer
import pytest_tensorizer.formats.torch
import pytest_tensorizer.process.marker
import pytest_tensorizer.samples
import pytest_tensorizer.suite.run  # noqa: F401

FORMATS = """
import torch

class Mine:
    name, suffix, version, capabilities = "mine", ".mine", "1.5", frozenset()

    def save(self, tensors, target):
        torch.save(dict(tensors), target)

    def load(self, source):
        return torch.load(source)

class Lossy(Mine):
    name = "lossy"

    def load(self, source):
        tensors = super().load(source)
        tensors.popitem()
        return tensors

class Mute(Mine):
    name = "mute"

    def load(self, source):
        try:
            return super().load(source)
        except FileNotFoundError:
            raise ValueError("not found") from None

class Needy(Mine):
    name, capabilities, requirements = "needy", frozenset({"s3"}), {"s3": "no-such-program"}
"""
WRITE, READ = (f"tensorizer-conformance/test_storage.py::test_{name}" for name in ("write", "read"))


class Repository:
    """A directory with a module `mine` of formats, and pytest started in it or below it."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        self.write("mine.py", FORMATS)

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def run(self, *arguments: str) -> Run:
        """Run the suite in this process."""
        return Run(self.pytester.runpytest_inprocess("--tensorizer-conformance", *arguments))

    def run_apart(self, *arguments: str) -> Run:
        """Run the suite in a process of its own, as under xdist, where this one's imports do not help."""
        return Run(self.pytester.run(sys.executable, "-m", "pytest", "--tensorizer-conformance", *arguments))


class Run:
    """What pytest has said. Works for one that was refused, too."""

    def __init__(self, result: pytest.RunResult) -> None:
        self.status = int(result.ret)
        self.out = "\n".join(result.outlines)
        self.errors = "\n".join(result.errlines)
        self.summary = self.out.partition(" tensorizer conformance =")[2]
        self.outcomes = result.parseoutcomes() if self.status < 3 else {}

    def assert_refused(self, *words: str) -> None:
        """It was a usage error, told once and with these words, and nothing was run."""
        assert self.status == pytest.ExitCode.USAGE_ERROR, self.out + self.errors
        told = [line for line in self.errors.splitlines() if line.startswith("ERROR: ")]
        assert len(told) == 1, self.errors
        for word in words:
            assert word in self.errors
        assert "INTERNALERROR" not in self.out + self.errors
        assert not self.summary, "a verdict on nothing"


@pytest.fixture
def repository(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setenv("COLUMNS", "120")
    for name in ("PYTEST_ADDOPTS", "FORCE_COLOR", "NO_COLOR", "PY_COLORS", "CI", "BUILD_NUMBER"):
        monkeypatch.delenv(name, raising=False)
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
        monkeypatch.delenv(name)
    return Repository(pytester)
