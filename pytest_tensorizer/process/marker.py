"""The marker `fresh_process`: a test that runs in a clean process, with the reports of an ordinary one."""

from __future__ import annotations

import importlib
import itertools
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pytest_tensorizer.process.limits import parse_size, parse_timeout
from pytest_tensorizer.process.pytest_child import ONLY, TestJob
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
        merged: dict[str, Any] = {}
        for mark in reversed(list(item.iter_markers(MARKER))):
            if mark.args:
                raise ValueError(f"@pytest.mark.{MARKER} on {item.nodeid} takes keyword arguments only, not {mark.args}")
            merged.update(mark.kwargs)
        unknown = sorted(merged.keys() - {"timeout", "memory_limit", "method"})
        if unknown:
            raise ValueError(f"@pytest.mark.{MARKER} on {item.nodeid} has no argument {unknown[0]!r}")
        if merged.get("method", "spawn") != "spawn":
            raise ValueError(f"@pytest.mark.{MARKER} on {item.nodeid}: method={merged['method']!r} is not known: use 'spawn'")
        limit = merged.get("memory_limit")
        return cls(parse_timeout(merged.get("timeout", 60.0)), None if limit is None else parse_size(limit))


def runs_in_clean_process(item: pytest.Item) -> bool:
    """Whether `item` has the marker, this process is not yet the clean one, and nobody wants to debug."""
    return (
        item.get_closest_marker(MARKER) is not None
        and ONLY not in item.config.stash
        and not item.config.getoption("usepdb", default=False)
    )


def run_in_clean_process(item: pytest.Item) -> None:
    """The `pytest_runtest_protocol` of an isolated test: run it elsewhere and replay its reports here."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    replay = _Replay(item)
    try:
        isolation = Isolation.of(item)
        ending = run_child(
            _job(item, isolation),
            replay.receive,
            timeout=isolation.timeout,
            capture=item.config.getoption("capture") != "no",
        )
    except (ValueError, NotImplementedError) as error:
        replay.fail("setup", str(error))
    else:
        replay.close(ending, isolation)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _job(item: pytest.Item, isolation: Isolation) -> TestJob:
    config = item.config
    variables: dict[str, str] = {}
    for more in item.ihook.pytest_tensorizer_child_environment(item=item):
        variables.update(more)
    return TestJob(
        # As xdist does: from the parsed `config.args` the root conftest would be lost, and overrides with it.
        args=tuple(str(arg) for arg in config.invocation_params.args),
        directory=str(config.invocation_params.dir),
        nodeid=item.nodeid,
        basetemp=str(_basetemp(config)),
        capture=config.getoption("capture") != "no",
        memory_limit=isolation.memory_limit,
        variables=variables,
    )


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
        self._troubles: list[str] = []

    def receive(self, message: tuple[Any, ...]) -> None:
        kind, *rest = message
        if kind == "report":
            self._log(rest[0])
        elif kind == "warning":
            self._warn(*rest)
        elif kind == "unresolved":
            self._troubles.append(f"{rest[0]} tests of this id were collected in the clean process, which has {rest[1]}")
        else:
            self._troubles.append(f"{kind} in the clean process:\n{rest[0]}")

    def _log(self, data: dict[str, Any]) -> None:
        report = self._item.config.hook.pytest_report_from_serializable(config=self._item.config, data=data)
        if report.nodeid != self._item.nodeid:
            self._troubles.append(f"the clean process reported {report.nodeid}, which nobody asked for")
            return
        self._seen[report.when] = report.outcome
        self._item.ihook.pytest_runtest_logreport(report=report)

    def _warn(
        self, module: str, name: str, text: str, filename: str, lineno: int, nodeid: str, location: Any
    ) -> None:
        try:
            category = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            category, text = UserWarning, f"{module}.{name}: {text}"
        message = warnings.WarningMessage(category(text), category, filename, lineno)
        self._item.config.hook.pytest_warning_recorded.call_historic(
            kwargs={"warning_message": message, "when": "runtest", "nodeid": nodeid, "location": location}
        )

    def close(self, ending: Ending, isolation: Isolation) -> None:
        """Fail the phase that never came. A green result needs setup, call and teardown of this very test."""
        due = ["setup", *(["call"] if self._seen.get("setup", "passed") == "passed" else []), "teardown"]
        missing = [phase for phase in due if phase not in self._seen]
        if ending.clean and not missing and not self._troubles:
            return
        phase = missing[0] if missing else "teardown"
        limit = f" The limit was {isolation.timeout:g} s." if ending.timed_out else ""
        text = [f"the clean process {ending.describe()} during {phase}.{limit}", *self._troubles]
        # What earlier phases printed stands in their reports.
        sections = [(name, out) for name, out in (("stdout", ending.stdout), ("stderr", ending.stderr)) if out]
        self.fail(phase, "\n".join(text), sections)

    def fail(self, phase: str, text: str, sections: list[tuple[str, str]] | None = None) -> None:
        """A failed report for `phase`, made by pytest's own hook, so that every plugin sees it."""
        for name, out in sections or []:
            self._item.add_report_section(phase, name, out)

        def raise_it() -> NoReturn:
            pytest.fail(text, pytrace=False)

        call = pytest.CallInfo.from_call(raise_it, when=phase)  # type: ignore[arg-type]
        report = self._item.ihook.pytest_runtest_makereport(item=self._item, call=call)
        self._item.ihook.pytest_runtest_logreport(report=report)
