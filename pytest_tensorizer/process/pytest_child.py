"""Running one test in a clean process, as a whole pytest session of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_tensorizer.process.child import Channel, imports_are_over

ONLY: pytest.StashKey[str] = pytest.StashKey()
"""In a clean process: the node id of the only test that it runs. Plugins look here to collect no more than that."""


@dataclass(frozen=True)
class TestJob:
    """Run the test `nodeid` of the session that `args` (the raw command line), in `directory`, makes."""

    __test__ = False

    args: tuple[str, ...]
    directory: str
    nodeid: str
    basetemp: str
    capture: bool
    memory_limit: int | None
    variables: dict[str, str]

    def run(self, channel: Channel) -> None:
        os.chdir(self.directory)
        # What the test prints goes to the parent's files, where a crash can't take it away: pytest's own capture
        # would keep it in a file that dies with the process.
        args = [*self.args, f"--basetemp={self.basetemp}", "--capture=no"]
        pytest.main(args, plugins=[_Reporter(self, channel)])


class _Reporter:
    """The plugin that makes a session run one test, and sends its reports instead of showing them."""

    def __init__(self, job: TestJob, channel: Channel) -> None:
        self._job = job
        self._channel = channel
        self._read = [0, 0, 0]

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> None:
        self._be_a_worker(config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        self._be_a_worker(config)
        config.stash[ONLY] = self._job.nodeid
        path, separator, names = self._job.nodeid.partition("::")
        file = config.rootpath / path
        config.args[:] = [f"{file}{separator}{names}" if file.exists() else self._job.nodeid]

    @staticmethod
    def _be_a_worker(config: pytest.Config) -> None:
        """What xdist does in its workers: other plugins know by it that reports are written elsewhere."""
        if not hasattr(config, "workerinput"):
            config.workerinput = {"workerid": "clean", "workercount": 1}  # type: ignore[attr-defined]
        for option, value in {"dist": "no", "tx": [], "numprocesses": None, "usepdb": False, "no_cov": True}.items():
            if hasattr(config.option, option):
                setattr(config.option, option, value)

    @pytest.hookimpl(specname="pytest_configure", trylast=True)
    def silence(self, config: pytest.Config) -> None:
        config.pluginmanager.unregister(name="terminalreporter")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        imports_are_over()
        found = [item for item in session.items if item.nodeid == self._job.nodeid]
        if len(found) != 1:
            self._channel.send("unresolved", len(found), [item.nodeid for item in session.items[:5]])
            return True
        found[0].config.hook.pytest_runtest_protocol(item=found[0], nextitem=None)
        return True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._channel.send("uncollected", report.longreprtext)

    def pytest_internalerror(self, excrepr: Any) -> None:
        self._channel.send("internal-error", str(excrepr))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._channel.send("report", self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._config = session.config

    def pytest_warning_recorded(self, warning_message: Any, when: str, nodeid: str, location: Any) -> None:
        if when == "runtest":
            text, category = str(warning_message.message), warning_message.category
            self._channel.send(
                "warning", category.__module__, category.__qualname__, text, warning_message.filename,
                warning_message.lineno, nodeid, location,
            )  # fmt: skip

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        return (yield from self._captured(item, "setup"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        return (yield from self._captured(item, "call"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        return (yield from self._captured(item, "teardown"))

    def _captured(self, item: pytest.Item, when: str) -> Iterator[Any]:
        try:
            return (yield)
        finally:
            if self._job.capture:
                for fd, stream in ((1, "stdout"), (2, "stderr")):
                    item.add_report_section(when, stream, self._printed(fd))

    def _printed(self, fd: int) -> str:
        """What has come since the last look into the file that the parent has put behind `fd`."""
        (sys.stdout if fd == 1 else sys.stderr).flush()
        data = os.pread(fd, os.fstat(fd).st_size - self._read[fd], self._read[fd])
        self._read[fd] += len(data)
        return data.decode(errors="replace")
