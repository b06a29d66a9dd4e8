"""Showing the reports of a test that ran in a clean process as if it had run here."""

from __future__ import annotations

import sys
import warnings
from typing import Any, NoReturn

import pytest

from pytest_tensorizer.process.ending import Ending
from pytest_tensorizer.process.stacks import readable


class Replay:
    """Shows the messages of a child as if the test had run here, and fails what the child has left unsaid."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self._seen: dict[str, str] = {}
        self._teardown: pytest.TestReport | None = None
        self._troubles: list[str] = []
        self._exit: BaseException | None = None

    def receive(self, message: tuple[Any, ...]) -> None:
        kind, *rest = message
        if kind == "report":
            self._replay(rest[0])
        elif kind == "warning":
            self._warn(*rest)
        elif kind == "unresolved":
            self._troubles.append(
                f"{rest[0]} tests of this id were collected in the clean process, which has {rest[1]}: an id must be "
                "the same in every process"
            )
        elif kind == "exit":
            self._exit = pytest.exit.Exception(*rest)
        elif kind == "interrupt":
            self._exit = KeyboardInterrupt(*rest)
        else:
            self._troubles.append(f"{kind} in the clean process:\n{rest[0]}")

    def _replay(self, data: dict[str, Any]) -> None:
        report = self._item.config.hook.pytest_report_from_serializable(config=self._item.config, data=data)
        if report.nodeid != self._item.nodeid:
            self._troubles.append(f"the clean process reported {report.nodeid}, which nobody asked for")
            return
        if getattr(report, "context", None) is None:  # else one of a subtest: the phase itself is still to come
            self._seen[report.when] = report.outcome
        if report.when == "teardown":
            # The last word on a test, for junit and its kind: held back until the process has ended well.
            self._teardown = report
        else:
            self.log(report)

    def log(self, report: pytest.TestReport) -> None:
        self._item.ihook.pytest_runtest_logreport(report=report)

    def _warn(self, module: str, name: str, text: str, filename: str, lineno: int, nodeid: str, location: Any) -> None:
        # Only where it is imported here anyway: what a test imports in a clean process may be there for a reason.
        category = getattr(sys.modules.get(module), name, None)
        try:
            warning = category(text)  # type: ignore[misc]
            message = warnings.WarningMessage(warning, category, filename, lineno)  # type: ignore[arg-type]
        except TypeError:
            warning = UserWarning(f"{module}.{name}: {text}")
            message = warnings.WarningMessage(warning, UserWarning, filename, lineno)
        self._item.config.hook.pytest_warning_recorded.call_historic(
            kwargs={"warning_message": message, "when": "runtest", "nodeid": nodeid, "location": location}
        )

    def close(self, ending: Ending, timeout: float | None) -> None:
        """Fail the phase that never came. A green result needs setup, call and teardown of this very test.

        Raises what ends the session, if the test has raised that.
        """
        if self._exit is not None:
            raise self._exit
        due = ["setup", *(["call"] if self._seen.get("setup", "passed") == "passed" else []), "teardown"]
        missing = [phase for phase in due if phase not in self._seen]
        if ending.clean and not missing and not self._troubles and self._teardown is not None:
            self.log(self._teardown)
            return
        phase = missing[0] if missing else "teardown"
        limit = f" The limit was {timeout:g} s." if ending.timed_out else ""
        text = [*self._troubles]
        if not (ending.clean and text):
            text.insert(0, f"the clean process {ending.describe()} during {phase}.{limit}")
        if self._teardown is not None and self._teardown.failed:
            text.append(self._teardown.longreprtext)
        # What earlier phases printed stands in their reports.
        outputs = [("stdout", ending.stdout), ("stderr", readable(ending))]
        sections = [(name, out) for name, out in outputs if out]
        self._fail(phase, "\n".join(text), ending.duration, sections)
        if phase != "teardown":
            self.close_test()

    def refuse(self, text: str) -> None:
        """Fail the setup of a test for which there is no process."""
        self._fail("setup", text, 0.0, [])
        self.close_test()

    def close_test(self) -> None:
        """A report of a teardown: many plugins, junit among them, finish a test there and nowhere else."""
        call = pytest.CallInfo.from_call(lambda: None, when="teardown")
        self.log(self._item.ihook.pytest_runtest_makereport(item=self._item, call=call))

    def _fail(self, phase: str, text: str, duration: float, sections: list[tuple[str, str]]) -> None:
        """A failed report for `phase`, made by pytest's own hook, so that every plugin sees it."""
        for name, out in sections:
            self._item.add_report_section(phase, name, out)
        if phase == "call":
            _expect_failure(self._item)

        def raise_it() -> NoReturn:
            pytest.fail(text, pytrace=False)

        call = pytest.CallInfo.from_call(raise_it, when=phase)  # type: ignore[arg-type]
        call.duration = duration
        self.log(self._item.ihook.pytest_runtest_makereport(item=self._item, call=call))


def _expect_failure(item: pytest.Item) -> None:
    """A test marked `xfail` may crash as well as fail. Pytest evaluates the mark in setup, which was not here."""
    from _pytest.skipping import evaluate_xfail_marks, xfailed_key

    item.stash[xfailed_key] = evaluate_xfail_marks(item)
