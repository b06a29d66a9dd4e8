"""The hooks that gather what happened and show it: in the process that talks to people, and in xdist's workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from pytest_tensorizer.suite.collect import ROOT
from pytest_tensorizer.suite.report import terminal
from pytest_tensorizer.suite.report.gather import Gatherer

if TYPE_CHECKING:
    from pytest_tensorizer.suite.run import SuiteRun

# What a worker has to say to its controller.
USAGE_ERROR, _DESELECTED = "tensorizer_usage_error", "tensorizer_deselected"


def refuse(config: pytest.Config, message: str) -> NoReturn:
    """Raise a usage error. That of an xdist worker is raised once more, by the controller: nobody hears workers."""
    getattr(config, "workeroutput", {})[USAGE_ERROR] = message
    raise pytest.UsageError(message)


class SuiteReport:
    """The hooks of the process that talks to people: header and summary. Not registered in workers and children."""

    def __init__(self, run: SuiteRun) -> None:
        self._run = run
        self._gatherer = Gatherer(ROOT)

    def pytest_report_header(self) -> list[str]:
        return terminal.header(self._run.settings, self._run.overridden)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._gatherer.expect(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        self._gatherer.expect(ids)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._gatherer.deselect(item.nodeid for item in items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        said = getattr(node, "workeroutput", None) or {}  # nothing, where the worker has died
        self._gatherer.deselect(said.get(_DESELECTED, []))
        if USAGE_ERROR in said:
            raise pytest.UsageError(said[USAGE_ERROR])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._gatherer.add(report)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Iterator[None]:
        # A session that calls itself green although a check was never heard of again is not.
        if exitstatus == 0 and self._gatherer.unheard() and not session.config.option.collectonly:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        yield

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int, config: pytest.Config) -> Iterator[None]:
        yield
        if config.option.collectonly or exitstatus == pytest.ExitCode.USAGE_ERROR:
            return
        terminal.write(terminalreporter, self._gatherer, self._run, int(exitstatus))


class SuiteWorker:
    """The hooks of an xdist worker, through which the controller hears what stands in no report."""

    def __init__(self, output: dict[str, Any]) -> None:
        self._output = output

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._output.setdefault(_DESELECTED, []).extend(item.nodeid for item in items)
