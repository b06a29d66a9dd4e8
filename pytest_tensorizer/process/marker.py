"""The marker `fresh_process`: a test that runs in a clean process, with the reports of an ordinary one."""

from __future__ import annotations

import itertools
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pytest_tensorizer.process.limits import parse_size, parse_timeout
from pytest_tensorizer.process.pytest_child import ONLY, TestJob, path_and_names
from pytest_tensorizer.process.spawn import Ending, run_child

MARKER = "fresh_process"
_count = itertools.count()


@dataclass(frozen=True)
class Isolation:
    """What the marker asks for. `timeout` in seconds, `memory_limit` in bytes."""

    timeout: float | None = 60.0
    memory_limit: int | None = None
    method: str = "spawn"

    @classmethod
    def of(cls, item: pytest.Item) -> Isolation:
        """Merge the marker of the function over those of its class and module.

        Raises ValueError for an argument that is unknown or makes no sense; the message names test and argument.
        """
        where = f"@pytest.mark.{MARKER} on {item.nodeid}"
        merged: dict[str, Any] = {}
        for mark in reversed(list(item.iter_markers(MARKER))):
            if mark.args:
                raise ValueError(f"{where} takes keyword arguments only, not {mark.args}")
            merged.update(mark.kwargs)
        unknown = sorted(merged.keys() - {"timeout", "memory_limit", "method"})
        if unknown:
            raise ValueError(f"{where} has no argument {unknown[0]!r}: it takes timeout, memory_limit and method")
        if merged.get("method", "spawn") != "spawn":
            raise ValueError(f"{where}: method={merged['method']!r} is not known: use 'spawn'")
        limit = merged.get("memory_limit")
        try:
            return cls(parse_timeout(merged.get("timeout", 60.0)), None if limit is None else parse_size(limit))
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None


def runs_in_clean_process(item: pytest.Item) -> bool:
    """Whether `item` has the marker, this process is not yet the clean one, and nobody wants to debug."""
    return item.get_closest_marker(MARKER) is not None and ONLY not in item.config.stash and not _debugs(item.config)


def isolation_is_off(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    """For `pytest_report_collectionfinish`: the line that says so, where a debugger was asked for."""
    marked = sum(item.get_closest_marker(MARKER) is not None for item in items) if _debugs(config) else 0
    if not marked:
        return []
    return [f"{MARKER}: --pdb or --trace turns isolation off, {marked} marked test(s) run in this process"]


def _debugs(config: pytest.Config) -> bool:
    """A debugger needs the terminal, which a clean process does not have."""
    return bool(config.getoption("usepdb", default=False) or config.getoption("trace", default=False))


def run_in_clean_process(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """The `pytest_runtest_protocol` of an isolated test: run it elsewhere and replay its reports here."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    replay = _Replay(item)
    # What goes wrong before there is a process is an error in this test's setup, and no other's.
    prepared = pytest.CallInfo.from_call(
        lambda: _prepare(item, nextitem), when="setup", reraise=(pytest.exit.Exception, KeyboardInterrupt)
    )
    if prepared.excinfo is not None:
        replay.log(item.ihook.pytest_runtest_makereport(item=item, call=prepared))
        replay.close_test()
    else:
        isolation, job = prepared.result
        ending = run_child(job, replay.receive, timeout=isolation.timeout, capture=job.capture)
        replay.close(ending, isolation)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _prepare(item: pytest.Item, nextitem: pytest.Item | None) -> tuple[Isolation, TestJob]:
    # This test sets up nothing here, so nobody else will tear down what the tests before it have left for those of
    # their module: pytest would find it when it sets up the next one, and refuse.
    runner: Any = item.config.pluginmanager.get_plugin("runner")
    runner.pytest_runtest_teardown(item=item, nextitem=nextitem)
    if not sys.platform.startswith("linux"):
        pytest.fail(f"@pytest.mark.{MARKER} needs Linux, and this is {sys.platform}", pytrace=False)
    try:
        isolation = Isolation.of(item)
    except ValueError as error:
        pytest.fail(str(error), pytrace=False)
    return isolation, _job(item, isolation)


def _job(item: pytest.Item, isolation: Isolation) -> TestJob:
    config = item.config
    variables: dict[str, str] = {}
    for more in item.ihook.pytest_tensorizer_child_environment(item=item):
        variables.update(more)
    path, names = path_and_names(item)
    return TestJob(
        # As xdist does: from the parsed `config.args` the root conftest would be lost, and overrides with it.
        args=tuple(str(arg) for arg in config.invocation_params.args),
        directory=str(config.invocation_params.dir),
        nodeid=item.nodeid,
        path=path,
        names=names,
        argument=_argument(item, path, names),
        basetemp=str(_basetemp(config)),
        capture=config.getoption("capture") != "no",
        memory_limit=isolation.memory_limit,
        variables=variables,
    )


def _argument(item: pytest.Item, path: str, names: tuple[str, ...]) -> str:
    """What the child has to collect to find `item`: its file and function, or its id where it comes from no file.

    Without the parameters, so that a child which makes other ones can say which.
    """
    if not any(isinstance(node, pytest.Directory) for node in item.listchain()):
        return item.nodeid
    last = (item.originalname or item.name) if isinstance(item, pytest.Function) else item.name
    return "::".join([path, *names[:-1], last])


def _basetemp(config: pytest.Config) -> Path:
    """A directory for the `tmp_path` of the child, inside that of this session where there is one."""
    factory = getattr(config, "_tmp_path_factory", None)
    base = factory.getbasetemp() if factory is not None else Path(tempfile.mkdtemp(prefix="pytest-tensorizer-"))
    return Path(base) / f"clean-{next(_count)}"


class _Replay:
    """Shows the messages of a child as if the test had run here, and fails what the child has left unsaid."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self._seen: dict[str, str] = {}
        self._teardown: pytest.TestReport | None = None
        self._troubles: list[str] = []

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

    def close(self, ending: Ending, isolation: Isolation) -> None:
        """Fail the phase that never came. A green result needs setup, call and teardown of this very test."""
        due = ["setup", *(["call"] if self._seen.get("setup", "passed") == "passed" else []), "teardown"]
        missing = [phase for phase in due if phase not in self._seen]
        if ending.clean and not missing and not self._troubles and self._teardown is not None:
            self.log(self._teardown)
            return
        phase = missing[0] if missing else "teardown"
        limit = f" The limit was {isolation.timeout:g} s." if ending.timed_out else ""
        text = [*self._troubles]
        if not (ending.clean and text):
            text.insert(0, f"the clean process {ending.describe()} during {phase}.{limit}")
        if self._teardown is not None and self._teardown.failed:
            text.append(self._teardown.longreprtext)
        # What earlier phases printed stands in their reports.
        sections = [(name, out) for name, out in (("stdout", ending.stdout), ("stderr", ending.stderr)) if out]
        self._fail(phase, "\n".join(text), ending.duration, sections)
        if phase != "teardown":
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
