"""The search for examples that break a rule: Hypothesis draws them and makes them small, a worker tries them."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest import SkipTest

from hypothesis import Phase, Verbosity, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from pytest_tensorizer.fuzz.outcome import Outcome
from pytest_tensorizer.fuzz.worker import Worker

if sys.version_info < (3, 11):
    from exceptiongroup import ExceptionGroup

_ROUNDS = 5
"""A search without a limit of time ends after so many: each finds other failures than those before it."""
_SECONDS_TO_SHRINK = 30.0
_SECONDS_BETWEEN_REPORTS = 0.5


@dataclass
class Finding:
    """A failure, with an example of it. `is_small` says that Hypothesis has found no simpler one."""

    fault: str
    example: Any
    outcome: Outcome
    is_small: bool = False

    @property
    def message(self) -> str:
        return self.outcome.faults[self.fault]

    @property
    def told(self) -> str:
        """The fault and what there is to tell of it."""
        return self.message if self.message == f"the process {self.fault}" else f"{self.fault}: {self.message}"


@dataclass
class Tally:
    """What was tried. `seconds` of wall clock; `excused` counts the examples that failed as a known issue says."""

    examples: int = 0
    refused: int = 0
    seconds: float = 0.0
    excused: Counter[str] = field(default_factory=Counter)
    findings: dict[str, Finding] = field(default_factory=dict)

    @property
    def facts(self) -> dict[str, Any]:
        """As plain values, which can travel between processes."""
        return {
            "examples": self.examples, "refused": self.refused, "seconds": round(self.seconds, 3),
            "excused": dict(self.excused), "failures": list(self.findings),
        }  # fmt: skip


class _Failure(Exception):
    """An example that breaks the rule. Hypothesis tells failures apart by the classes that they have."""


class _TimeIsOver(BaseException):
    """No Exception: Hypothesis is to let it pass."""


class Search:
    """Looks for examples that break a rule.

    Failures are told apart by their faults. First those are tried that Hypothesis' database has of an earlier run. Then
    come rounds, each of which looks for one failure that is new, and makes it small. What else it meets on the way is
    kept as it is, until another round meets it too: what fails in two ways can be simple in one of them only.

    Args:
        worker: tries the examples.
        name: tells this search from others in the database.
        profile: settings of Hypothesis; each round draws its `max_examples`.
        seconds: how long to search; a failure that is found at the end may take half a minute more to be made small.
            None is for one round, and more where that finds something.
        excuse: takes the traits of an example and one of its faults, and returns the known issue that this is, or "".
        report: called now and then, and whenever there is a new failure, or a simpler example of one.
    """

    def __init__(
        self,
        worker: Worker,
        *,
        name: str,
        profile: settings,
        seconds: float | None,
        excuse: Callable[[frozenset[str], str], str] = lambda traits, fault: "",
        report: Callable[[Tally, Finding | None], None] = lambda tally, finding: None,
    ) -> None:
        self.tally = Tally()
        self._worker = worker
        self._name = re.sub(r"\W", "_", name)
        self._profile = profile
        self._excuse = excuse
        self._report = report
        self._kinds: dict[str, type[_Failure]] = {}  # what this round looks for, once it has found it
        self._shortest: dict[str, tuple[int, Finding]] = {}
        self._done: set[str] = set()  # the faults of which there is a small example
        self._replays = False
        self._started = self._reported = time.monotonic()
        self._end = None if seconds is None else self._started + seconds
        self._end_of_round = self._end

    def run(self, examples: st.SearchStrategy[Any]) -> Tally:
        """Search, and return what was tried and found."""
        if self._profile.database is not None:
            self._replays = True
            with contextlib.suppress(SkipTest):  # the database has nothing for this search
                self._round(examples, [Phase.reuse])
            self._replays = False
        rounds = 0
        while not self._is_over(self._end):
            found = self._round(examples, [Phase.generate, Phase.shrink])
            rounds += 1
            if self._end is None and (not found or rounds == _ROUNDS):
                break
        self._tell(None)
        return self.tally

    def _round(self, examples: st.SearchStrategy[Any], phases: list[Phase]) -> bool:
        """Whether it has found something."""
        self._kinds, self._shortest, self._end_of_round = {}, {}, self._end
        test = self._test(examples)
        configured = settings(self._profile, phases=phases, verbosity=Verbosity.quiet, print_blob=False)
        try:
            configured(test)()
        except (_TimeIsOver, Flaky):
            # There was no time to make it simple; or it fails now and then, as a race does. Newer releases raise
            # a Flaky that is an ExceptionGroup too.
            for fault in self._kinds:
                self.tally.findings[fault] = self._shortest[fault][1]
        except (_Failure, ExceptionGroup):
            for fault in self._kinds:
                # Hypothesis has tried the simplest example of each last.
                self.tally.findings[fault].is_small = True
        for fault in self._kinds:
            self._tell(self.tally.findings[fault])
        self._done.update(self._kinds)
        return bool(self._kinds)

    def _test(self, examples: st.SearchStrategy[Any]) -> Callable[[], None]:
        def search(example: Any) -> None:
            self._try(example)

        # In the database failures stand under the name and the source of a test, and these are all the same here.
        search.__name__ = search.__qualname__ = self._name
        return given(examples)(search)

    def _try(self, example: Any) -> None:
        if self._is_over(self._end_of_round):
            raise _TimeIsOver
        outcome = self._worker.run(example)
        self.tally.examples += 1
        self.tally.refused += bool(outcome.refused)
        fault = self._wanted(example, outcome)
        if fault:
            raise self._kinds[fault]
        if time.monotonic() > self._reported + _SECONDS_BETWEEN_REPORTS:
            self._tell(None)

    def _wanted(self, example: Any, outcome: Outcome) -> str:
        """The fault for which the example is to count as a failure in this round, or ""."""
        if not outcome.faults:
            return ""
        issues = {fault: self._excuse(example.traits, fault) for fault in outcome.faults}
        self.tally.excused.update(set(issues.values()) - {""})
        news = sorted(fault for fault, issue in issues.items() if not issue and fault not in self._done)
        wanted = [fault for fault in news if fault in self._kinds]
        if not wanted and news and (self._replays or not self._kinds):
            wanted = news[:1]
        for fault in news:
            self._keep(Finding(fault, example, outcome), is_wanted=fault in wanted[:1])
        return "".join(wanted[:1])

    def _keep(self, finding: Finding, *, is_wanted: bool) -> None:
        fault = finding.fault
        is_new = fault not in self.tally.findings
        if is_new or is_wanted:
            self.tally.findings[fault] = finding
        if is_new:
            self._tell(finding)
        if not is_wanted:
            return
        length = len(repr(finding.example))
        if not self._kinds:
            self._end_of_round = max(self._end or 0.0, time.monotonic() + _SECONDS_TO_SHRINK)
        if fault not in self._kinds:
            self._kinds[fault] = type("Failure", (_Failure,), {})
        if fault not in self._shortest or length <= self._shortest[fault][0]:
            self._shortest[fault] = length, finding

    def _tell(self, finding: Finding | None) -> None:
        self._reported = time.monotonic()
        self.tally.seconds = self._reported - self._started
        self._report(self.tally, finding)

    @staticmethod
    def _is_over(end: float | None) -> bool:
        return end is not None and time.monotonic() > end
