"""Tests in a clean process: a pytest session that collects, and then runs a test for whoever asks."""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _pytest.capture
import pytest

from pytest_tensorizer.process.child import imports_are_over
from pytest_tensorizer.process.limits import MemoryLimit
from pytest_tensorizer.process.server import preload
from pytest_tensorizer.process.transport import Channel

CLEAN: pytest.StashKey[str | None] = pytest.StashKey()
"""Set in a clean process, and in the zygote that it is forked from: tests run there, and nothing is decided or shown.

It is what was collected there: one argument, or None for all that the parent has collected.
"""


def path_and_names(item: pytest.Item) -> tuple[str, tuple[str, ...]]:
    """What makes `item` the same test in two processes.

    Not its id: of a file outside the rootdir that depends on the arguments, and xdist appends groups to it.
    """
    outside = (pytest.Session, pytest.Directory, pytest.File)
    return str(item.path), tuple(node.name for node in item.listchain() if not isinstance(node, outside))


@dataclass(frozen=True)
class Collection:
    """The session that `args` (the raw command line), in `directory`, makes, up to its tests: a zygote's template.

    It collects what the parent has collected, or `argument` alone.
    """

    args: tuple[str, ...]
    directory: str
    basetemp: str
    argument: str | None = None
    preload: tuple[str, ...] = ()

    def prepare(self, serve: Callable[[Any], None]) -> str:
        """Collect and call `serve` with the :class:`Collected`. Returns why that was not possible."""
        preload(self.preload)
        os.chdir(self.directory)
        collected = Collected(self.argument, serve)
        # What a test prints goes to the parent's files, where a crash can't take it away: pytest's own capture would
        # keep it in a file that dies with the process.
        mine = [f"--basetemp={self.basetemp}", "--capture=no"]
        end = self.args.index("--") if "--" in self.args else len(self.args)
        code = pytest.main([*self.args[:end], *mine, *self.args[end:]], plugins=[collected, _Silent()])
        if code == pytest.ExitCode.USAGE_ERROR:
            return "\n".join([*collected.troubles(), "pytest refuses to collect; its message stands on stderr"])
        return (
            "\n".join(collected.troubles()) or f"pytest ended with {getattr(code, 'name', code)} before it ran a test"
        )


@dataclass(frozen=True)
class TestJob:
    """Run one of the tests that were collected, which `path` and `names` tell, and report it as `nodeid`."""

    __test__ = False

    nodeid: str
    path: str
    names: tuple[str, ...]
    basetemp: str
    capture: bool
    timeout: float | None
    memory_limit: int | None
    variables: dict[str, str]

    def run(self, channel: Channel, prepared: Any) -> None:
        """In a fork of the zygote whose template was a :class:`Collection`."""
        prepared.run(self, channel)


@dataclass(frozen=True)
class FreshTestJob:
    """Collect and run one test, in a fresh interpreter."""

    collection: Collection
    test: TestJob

    @property
    def variables(self) -> dict[str, str]:
        return self.test.variables

    def run(self, channel: Channel, prepared: None) -> None:
        ran = False

        def run(collected: Collected) -> None:
            nonlocal ran
            ran = True
            imports_are_over()
            collected.run(self.test, channel)

        trouble = self.collection.prepare(run)
        if not ran:
            channel.send("uncollected", trouble)


class Collected:
    """The plugin that makes a session collect, hand over, and send the reports of a test instead of showing them."""

    def __init__(self, argument: str | None, serve: Callable[[Collected], None]) -> None:
        self._uncollected: dict[str, str] = {}
        self._internal_errors: list[str] = []
        self._argument = argument
        self._serve = serve
        self._items: dict[tuple[str, tuple[str, ...]], list[pytest.Item]] = {}
        self._printed = _Printed()
        self._limited = _Limited()
        self._channel: Channel | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> None:
        self._be_a_worker(config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        self._config = config
        self._be_a_worker(config)
        config.stash[CLEAN] = self._argument
        if self._argument is not None:
            config.args[:] = [self._argument]
        # Here, so that they stand around pytest's own capture, which pours out what `capsys` has left.
        config.pluginmanager.register(self._limited)
        config.pluginmanager.register(self._printed)

    @staticmethod
    def _be_a_worker(config: pytest.Config) -> None:
        """What xdist does in its workers: other plugins know by it that reports are written elsewhere."""
        if not hasattr(config, "workerinput"):
            config.workerinput = {"workerid": "clean", "workercount": 1}  # type: ignore[attr-defined]
        off: dict[str, Any] = {
            "dist": "no", "tx": [], "numprocesses": None, "usepdb": False, "no_cov": True, "maxfail": 0,
            "log_file": os.devnull,  # it would begin the parent's anew
        }  # fmt: skip
        for option, value in off.items():
            if hasattr(config.option, option):
                setattr(config.option, option, value)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        # Before anything is deselected: the parent has selected, and with one test in sight a plugin might not.
        self._items = {}
        for item in items:
            self._items.setdefault(path_and_names(item), []).append(item)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._serve(self)
        return True

    def run(self, job: TestJob, channel: Channel) -> None:
        self._nodeid, self._job, self._channel = "", job, channel
        found = self._items.get((job.path, job.names), [])
        if len(found) != 1:
            for nodeid, trouble in self._uncollected.items():
                if job.nodeid.startswith(nodeid):
                    channel.send("uncollected", trouble)
            nodeids = [item.nodeid for items in self._items.values() for item in items]
            similar = difflib.get_close_matches(job.nodeid, nodeids, n=5, cutoff=0.8)
            channel.send("unresolved", len(found), similar or nodeids[:5])
            return
        (item,) = found
        _move_tmp_path(item.config, Path(job.basetemp))
        self._limited.limit = MemoryLimit(job.memory_limit)
        if job.capture:
            self._printed.begin()
            sys.stdin = _pytest.capture.DontReadFromInput()
        self._nodeid = item.nodeid
        try:
            item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
        except pytest.exit.Exception as error:  # ends the session, so it is the parent's to raise
            channel.send("exit", error.msg, error.returncode)
        except KeyboardInterrupt as error:
            channel.send("interrupt", str(error))

    def troubles(self) -> list[str]:
        """What has gone wrong before a test was asked for."""
        return [*self._uncollected.values(), *self._internal_errors]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._uncollected[report.nodeid] = report.longreprtext

    def pytest_internalerror(self, excrepr: Any) -> None:
        self._internal_errors.append(f"internal error of pytest:\n{excrepr}")
        self._send("internal error", str(excrepr))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # Told for the sake of the terminal, but it is here that pytest fails a test whose subtests have failed.
        self._config.hook.pytest_report_teststatus(report=report, config=self._config)
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        if report.nodeid == self._nodeid:
            data["nodeid"] = self._job.nodeid
        self._send("report", data)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        report = yield
        if call.excinfo is not None and (reason := self._limited.limit.explain(call.excinfo.value, "the test")):
            report.sections.append(("memory_limit", reason))
        return report

    def pytest_warning_recorded(self, warning_message: Any, when: str, location: Any) -> None:
        if when == "runtest":
            text, category = str(warning_message.message), warning_message.category
            self._send(
                "warning", category.__module__, category.__qualname__, text, warning_message.filename,
                warning_message.lineno, self._job.nodeid, location,
            )  # fmt: skip

    def _send(self, *message: Any) -> None:
        if self._channel is not None:  # else nobody has asked for a test yet
            self._channel.send(*message)


class _Limited:
    """The plugin that limits the memory of what the test does, and not of what pytest and this package do about it."""

    def __init__(self) -> None:
        self.limit = MemoryLimit(None)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, None, None]:
        __tracebackhide__ = True
        with self.limit:
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, None, None]:
        __tracebackhide__ = True
        with self.limit:
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None, None, None]:
        __tracebackhide__ = True
        with self.limit:
            return (yield)


class _Printed:
    """The plugin that puts what a phase has printed into its report, as pytest's capture would."""

    def __init__(self) -> None:
        self._files: dict[int, int] = {}
        self._read = {1: 0, 2: 0}

    def begin(self) -> None:
        # The parent's files, even where the test closes or replaces its standard streams.
        self._files = {fd: os.dup(fd) for fd in (1, 2)}

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
            for fd in self._files:
                item.add_report_section(when, "stdout" if fd == 1 else "stderr", self._news(fd))

    def _news(self, fd: int) -> str:
        """What has come since the last look into the file that the parent has put behind `fd`."""
        with contextlib.suppress(OSError, ValueError):  # closed by the test
            (sys.stdout if fd == 1 else sys.stderr).flush()
        file = self._files[fd]
        data = os.pread(file, os.fstat(file).st_size - self._read[fd], self._read[fd])
        self._read[fd] += len(data)
        return data.decode(errors="replace")


def _move_tmp_path(config: pytest.Config, basetemp: Path) -> None:
    """Give this test a directory of its own for `tmp_path`, of which pytest thinks one for each session."""
    factory = getattr(config, "_tmp_path_factory", None)
    if factory is not None:
        factory._given_basetemp, factory._basetemp = basetemp, None


class _Silent:
    """Gives the terminal reporter, without which older versions of pytest explain no assertion, nowhere to write."""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.pluginmanager.unregister(name="terminalreporter")
        nowhere = open(os.devnull, "w")  # noqa: SIM115 - as long as the process
        config.pluginmanager.register(pytest.TerminalReporter(config, nowhere), "terminalreporter")
