"""Findings as files: a test that a person can run, read and paste."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from pytest_tensorizer.fuzz.search import Finding

DIRECTORY = "tensorizer-findings"
"""Where they lie, below the root directory of the repository."""

_SHOWN = 20
"""Lines of what was printed, or of the stacks, that a file shows."""


@dataclass(frozen=True)
class Origin:
    """Where a finding comes from: what was called with the example, on which subject.

    Attributes:
        check: the id of the check.
        subject: the name of the subject, and `version` its version.
        rule: the name of a function of `pytest_tensorizer.fuzz.properties`.
        target: what the option was given that chose the subject: a name, or `package.module:attribute`; "" where a
            fixture has given it.
        fixture: the fixture that gives the subject, "tensorizer_formats" or "tensorizer_prompt_embeds_loader".
        limits: the arguments of the marker for an example that ends its process.
    """

    check: str
    subject: str
    version: str
    rule: str
    target: str
    fixture: str
    limits: str

    def path(self, root: Path, finding: Finding) -> Path:
        """The same for the same failure in every run."""
        digest = hashlib.sha256(finding.fault.encode(errors="backslashreplace")).hexdigest()[:8]
        return root / DIRECTORY / f"{_identifier(self.check)}_{_identifier(self.subject)}_{digest}.py"

    def write(self, root: Path, finding: Finding) -> Path:
        """Write the file, whole or not at all. Returns its path. Raises OSError where it cannot be written."""
        path = self.path(root, finding)
        path.parent.mkdir(exist_ok=True)
        new = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            new.write_text(self._text(path, finding), encoding="utf-8")
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
        return path

    def _text(self, path: Path, finding: Finding) -> str:
        simple = "" if finding.is_small else "There was no time to find a simpler example.\n"
        run = f"Found by pytest --tensorizer-fuzz. Run it with: python -m pytest {path.parent.name}/{path.name}"
        printed = [line.rstrip() for line in finding.outcome.output.splitlines()[:_SHOWN]]
        known = f"As a known issue: {self.excuse(finding)}"
        head = f"{self.check}, {self.subject} {self.version}: {_line(finding.fault)}"
        told = "\n".join([head, "", _line(finding.message), *printed, "", f"{simple}{run}", known, ""])
        return f'"""{_quoted(told)}"""\n\n{self.test(finding)}'

    def excuse(self, finding: Finding) -> str:
        """The key of a known issue that covers this example, with all of its traits: fewer cover more."""
        # What JSON writes for texts and lists of them is TOML as well.
        traits = json.dumps(sorted(finding.example.traits))
        return (
            f"fuzz = [{{ check = {json.dumps(self.check)}, traits = {traits}, failure = {json.dumps(finding.fault)} }}]"
        )

    def test(self, finding: Finding) -> str:
        """The test, as code."""
        imports = ["from pytest_tensorizer.fuzz import properties", "from pytest_tensorizer.strategies import *"]
        subject, arguments = f"{self.fixture}", f"{self.fixture}, tmp_path"
        if self.target:
            module, arguments = {
                "tensorizer_formats": "formats", "tensorizer_prompt_embeds_loader": "prompt_embeds"
            }[self.fixture], "tmp_path"  # fmt: skip
            subject = f"{module}.resolve({self.target!r})"
            imports.insert(0, f"from pytest_tensorizer import {module}")
        elif self.fixture == "tensorizer_formats":
            subject = f"{{format.name: format for format in {self.fixture}}}[{self.subject!r}]"
        mark = ""
        if finding.outcome.ended_the_process:
            imports = ["import pytest\n", *imports]
            mark = f"@pytest.mark.fresh_process({self.limits})\n"
        return (
            "\n".join(imports)
            + f"\n\nexample = {finding.example!r}\n\n\n{mark}def test_{_identifier(self.check)}({arguments}):\n"
            f"    properties.{self.rule}({subject}, example, tmp_path)\n"
        )


def _identifier(text: str) -> str:
    return re.sub(r"\W+", "_", text)


def _quoted(text: str) -> str:
    """As it can stand in a docstring, whatever the subject has printed: NUL and lone surrogates are no source code."""
    shown = "".join(char if char == "\n" or char.isprintable() else ascii(char)[1:-1] for char in text)
    return shown.replace("\\", "\\\\").replace('"""', "'''")


def _line(text: str) -> str:
    return " ".join(text.split())[:500]
