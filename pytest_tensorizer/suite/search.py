"""How a check of the suite searches: what is known does not count, and what is new becomes a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st

from pytest_tensorizer.fuzz import progress
from pytest_tensorizer.fuzz.findings import Origin
from pytest_tensorizer.fuzz.search import Finding, Search, Tally
from pytest_tensorizer.fuzz.worker import Worker
from pytest_tensorizer.strategies.profiles import CI, FUZZ, PROFILES
from pytest_tensorizer.suite.check import Check
from pytest_tensorizer.suite.known_issues import KnownIssue
from pytest_tensorizer.suite.subjects import Subject

if TYPE_CHECKING:
    from pytest_tensorizer.fuzz.worker import Rule

TIMEOUT, MEMORY_LIMIT = 10, "1GiB"
"""Of each example: seconds, and what it may allocate."""

_FIXTURES = {"format": "tensorizer_formats", "prompt-embeds": "tensorizer_prompt_embeds_loader"}


class PropertySearch:
    """Looks for examples on which a subject fails a check.

    Args:
        check: the check, and `subject` the one that it is about.
        issues: what is known. Examples that fail so are counted, and pass.
        directory: an empty one.
        seconds: how long to search; None is for the few examples of a gate, the same in each run.
        root: where the files of findings lie, below the root of the repository; None is for none.

    Attributes:
        facts: what has been tried so far, as plain values: see `Tally.facts`.
    """

    def __init__(
        self, check: Check, subject: Subject, issues: list[KnownIssue], *, directory: Path, seconds: float | None,
        root: Path | None,
    ) -> None:  # fmt: skip
        self.facts: dict[str, Any] = Tally().facts
        self._check = check
        self._subject = subject
        self._issues = [issue for issue in issues if issue.concerns(subject)]
        self._directory = directory
        self._seconds = seconds
        self._root = root
        self._paths: dict[str, Path | OSError] = {}  # of findings, by their faults

    def run(
        self,
        rule: Callable[[Any, Any, Path], str],
        tested: object,
        examples: st.SearchStrategy[Any],
        *,
        sends: Callable[[Any], Any] = lambda example: example,
        receives: Callable[[Any], Any] = lambda sent: sent,
    ) -> None:
        """Search. Fails the test, and names each distinct failure, if there are any.

        Args:
            rule: a function of `pytest_tensorizer.fuzz.properties`, and `tested` its first argument.
            sends, receives: the first makes of an example what travels to the process that tries it, and there the
                other makes the example of it again.
        """
        origin = Origin(
            check=self._check.id, subject=self._subject.name, version=self._subject.version, rule=rule.__name__,
            target=self._subject.target if self._subject.target != "conftest.py" else "",
            fixture=_FIXTURES[self._subject.kind], limits=f'timeout={TIMEOUT}, memory_limit="{MEMORY_LIMIT}"',
        )  # fmt: skip
        worker = self._worker(lambda sent, directory: rule(tested, receives(sent), directory), sends)
        search = Search(
            worker,
            name=f"{self._check.key}",
            profile=PROFILES[CI if self._seconds is None else FUZZ],
            seconds=self._seconds,
            excuse=self._excuse,
            report=lambda tally, finding: self._report(origin, tally, finding),
        )
        try:
            tally = search.run(examples)
        finally:
            worker.close()
        if tally.findings:
            pytest.fail(self._tell(origin, tally), pytrace=False)

    def aside(self, make: Callable[[Path], bytes]) -> bytes:
        """What `make` makes in an empty directory, in another process: this one is to have no threads of a subject's.

        Fails the test if it raises or crashes.
        """
        path = self._directory / "made"

        def rule(example: object, directory: Path) -> str:
            path.write_bytes(make(directory))
            return ""

        worker = self._worker(rule, lambda example: example)
        try:
            outcome = worker.run(None)
        finally:
            worker.close()
        if outcome.faults:
            pytest.fail(
                f"the good file cannot be made: {', '.join(outcome.faults.values())}\n{outcome.output}", pytrace=False
            )
        return path.read_bytes()

    def _worker(self, rule: Rule, sends: Callable[[Any], Any]) -> Worker:
        return Worker(rule, directory=self._directory, timeout=TIMEOUT, memory_limit=1 << 30, sends=sends)

    def _excuse(self, traits: frozenset[str], fault: str) -> str:
        return next((issue.id for issue in self._issues if issue.excuses(self._check, traits, fault)), "")

    def _report(self, origin: Origin, tally: Tally, finding: Finding | None) -> None:
        if finding is not None and self._root is not None:
            try:
                self._paths[finding.fault] = origin.write(self._root, finding)
            except OSError as error:  # a full disk, or no right to write: told with the finding, which is not lost
                self._paths[finding.fault] = error
        self.facts = tally.facts
        if progress.VARIABLE in os.environ:
            files = {fault: str(path) for fault, path in self._paths.items() if isinstance(path, Path)}
            progress.write(Path(os.environ[progress.VARIABLE]), self._check.key, {**self.facts, "files": files})

    def _tell(self, origin: Origin, tally: Tally) -> str:
        findings = list(tally.findings.values())
        what = f"{len(findings)} distinct failures" if len(findings) > 1 else "a failure"
        lines = [f"{what} in {tally.examples:,} examples: {'; '.join(finding.fault for finding in findings)}"]
        for finding in findings:
            lines += ["", finding.told]
            where = self._paths.get(finding.fault)
            if isinstance(where, OSError):
                lines.append(f"The file that reproduces it could not be written: {where}")
            elif where is not None:
                lines.append(f"To reproduce it: python -m pytest {where.relative_to(self._root or where)}")
            lines.append(f"As a known issue: {origin.excuse(finding)}")
            lines += ["", *(f"    {line}".rstrip() for line in origin.test(finding).splitlines())]
        return "\n".join(lines)
