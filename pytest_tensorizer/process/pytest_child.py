"""Running one test in a clean process, as a whole pytest session of its own."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_tensorizer.process.child import Channel, imports_are_over

ONLY: pytest.StashKey[str] = pytest.StashKey()
"""In a clean process: the node id of the only test that it runs. Plugins look here to collect no more than that."""


def path_and_names(item: pytest.Item) -> tuple[str, tuple[str, ...]]:
    """What makes `item` the same test in two processes.

    Not its id: of a file outside the rootdir that depends on the arguments, and xdist appends groups to it.
    """
    outside = (pytest.Session, pytest.Directory, pytest.File)
    return str(item.path), tuple(node.name for node in item.listchain() if not isinstance(node, outside))


@dataclass(frozen=True)
class TestJob:
    """Run the test `nodeid` of the session that `args` (the raw command line), in `directory`, makes.

    In that session it is found by `path` and `names`, once `argument` has been collected.
    """

    __test__ = False

    args: tuple[str, ...]
    directory: str
    nodeid: str
    path: str
    names: tuple[str, ...]
    argument: str
    basetemp: str
    capture: bool
    memory_limit: int | None
    variables: dict[str, str]

    def run(self, channel: Channel) -> None:
        os.chdir(self.directory)
        # What the test prints goes to the parent's files, where a crash can't take it away: pytest's own capture
        # would keep it in a file that dies with the process.
        mine = [f"--basetemp={self.basetemp}", "--capture=no"]
        end = self.args.index("--") if "--" in self.args else len(self.args)
        code = pytest.main([*self.args[:end], *mine, *self.args[end:]], plugins=[_Reporter(self, channel), _Silent()])
        if code == pytest.ExitCode.USAGE_ERROR:
            channel.send("usage error", "pytest could not find or collect this test; its message stands on stderr")


class _Reporter:
    """The plugin that makes a session run one test, and sends its reports instead of showing them."""

    def __init__(self, job: TestJob, channel: Channel) -> None:
        self._job = job
        self._channel = channel
        self._items: list[pytest.Item] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> None:
        self._be_a_worker(config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        self._config = config
        self._be_a_worker(config)
        config.stash[ONLY] = self._job.nodeid
        config.args[:] = [self._job.argument]
        if self._job.capture:
            # Here, so that it stands around pytest's own capture, which pours out what `capsys` has left.
            config.pluginmanager.register(_Printed())

    @staticmethod
    def _be_a_worker(config: pytest.Config) -> None:
        """What xdist does in its workers: other plugins know by it that reports are written elsewhere."""
        if not hasattr(config, "workerinput"):
            config.workerinput = {"workerid": "clean", "workercount": 1}  # type: ignore[attr-defined]
        off: dict[str, Any] = {"dist": "no", "tx": [], "numprocesses": None, "usepdb": False, "no_cov": True}
        for option, value in off.items():
            if hasattr(config.option, option):
                setattr(config.option, option, value)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        # Before anything is deselected: the parent has selected, and with one test in sight a plugin might not.
        self._items = list(items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        imports_are_over()
        wanted = (self._job.path, self._job.names)
        found = [item for item in self._items if path_and_names(item) == wanted]
        if len(found) != 1:
            self._channel.send("unresolved", len(found), [item.nodeid for item in self._items[:5]])
            return True
        self._nodeid = found[0].nodeid
        found[0].config.hook.pytest_runtest_protocol(item=found[0], nextitem=None)
        return True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._channel.send("uncollected", report.longreprtext)

    def pytest_internalerror(self, excrepr: Any) -> None:
        self._channel.send("internal error", str(excrepr))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # Told for the sake of the terminal, but it is here that pytest fails a test whose subtests have failed.
        self._config.hook.pytest_report_teststatus(report=report, config=self._config)
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        if report.nodeid == self._nodeid:
            data["nodeid"] = self._job.nodeid
        self._channel.send("report", data)

    def pytest_warning_recorded(self, warning_message: Any, when: str, location: Any) -> None:
        if when == "runtest":
            text, category = str(warning_message.message), warning_message.category
            self._channel.send(
                "warning", category.__module__, category.__qualname__, text, warning_message.filename,
                warning_message.lineno, self._job.nodeid, location,
            )  # fmt: skip


class _Printed:
    """The plugin that puts what a phase has printed into its report, as pytest's capture would."""

    def __init__(self) -> None:
        # The parent's files, even where the test closes or replaces its standard streams.
        self._files = {fd: os.dup(fd) for fd in (1, 2)}
        self._read = {1: 0, 2: 0}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        __tracebackhide__ = True
        return (yield from self._captured(item, "setup"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        __tracebackhide__ = True
        return (yield from self._captured(item, "call"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        __tracebackhide__ = True
        return (yield from self._captured(item, "teardown"))

    def _captured(self, item: pytest.Item, when: str) -> Generator[None, None, None]:
        __tracebackhide__ = True
        try:
            return (yield)
        finally:
            for fd, stream in ((1, "stdout"), (2, "stderr")):
                item.add_report_section(when, stream, self._news(fd))

    def _news(self, fd: int) -> str:
        """What has come since the last look into the file that the parent has put behind `fd`."""
        with contextlib.suppress(OSError, ValueError):  # closed by the test
            (sys.stdout if fd == 1 else sys.stderr).flush()
        file = self._files[fd]
        data = os.pread(file, os.fstat(file).st_size - self._read[fd], self._read[fd])
        self._read[fd] += len(data)
        return data.decode(errors="replace")


class _Silent:
    """Gives the terminal reporter, without which older versions of pytest explain no assertion, nowhere to write."""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.pluginmanager.unregister(name="terminalreporter")
        nowhere = open(os.devnull, "w")  # noqa: SIM115 - as long as the process
        config.pluginmanager.register(pytest.TerminalReporter(config, nowhere), "terminalreporter")
