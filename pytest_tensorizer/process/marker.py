"""The marker `fresh_process`: a test that runs in a clean process, with the reports of an ordinary one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from pytest_tensorizer.options import Settings, needs_terminal
from pytest_tensorizer.process.conversation import ZygoteError
from pytest_tensorizer.process.interpreter import Interpreter
from pytest_tensorizer.process.limits import parse_method, parse_size, parse_timeout, why_memory_is_unlimited
from pytest_tensorizer.process.pytest_child import CLEAN, TestJob
from pytest_tensorizer.process.pytest_parent import Processes, test_job
from pytest_tensorizer.process.replay import Replay
from pytest_tensorizer.process.zygote import Zygote

MARKER = "fresh_process"


class IsolationError(ValueError):
    """The marker asks for what makes no sense."""


@dataclass(frozen=True)
class Isolation:
    """What the marker asks for. `timeout` in seconds, `memory_limit` in bytes."""

    timeout: float | None = 60.0
    memory_limit: int | None = None
    method: str = "zygote"

    @classmethod
    def of(cls, item: pytest.Item) -> Isolation:
        """Merge the marker of the function over those of its class and module.

        Raises IsolationError for an argument that is unknown or makes no sense; the message names test and argument.
        """
        where = f"@pytest.mark.{MARKER} on {item.nodeid}"
        merged: dict[str, Any] = {}
        for mark in reversed(list(item.iter_markers(MARKER))):
            if mark.args:
                raise IsolationError(f"{where} takes keyword arguments only, not {mark.args}")
            merged.update(mark.kwargs)
        unknown = sorted(merged.keys() - {"timeout", "memory_limit", "method"})
        if unknown:
            raise IsolationError(f"{where} has no argument {unknown[0]!r}: it takes timeout, memory_limit and method")
        limit = merged.get("memory_limit")
        try:
            return cls(
                parse_timeout(merged.get("timeout", 60.0)),
                None if limit is None else parse_size(limit),
                parse_method(merged.get("method")),
            )
        except ValueError as error:
            raise IsolationError(f"{where}: {error}") from None


def is_marked(item: pytest.Item) -> bool:
    """Whether `item` is to run in a clean process: it has the marker, or all tests are."""
    return item.get_closest_marker(MARKER) is not None or Settings.of(item.config).fresh_process


def runs_in_clean_process(item: pytest.Item) -> bool:
    """Whether `item` is marked, this process is not yet the clean one, and nobody wants to debug."""
    return is_marked(item) and CLEAN not in item.config.stash and not needs_terminal(item.config)


def isolation_is_off(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    """For `pytest_report_collectionfinish`: the line that says so, where the terminal is needed."""
    option = needs_terminal(config)
    marked = sum(map(is_marked, items)) if option else 0
    if not marked:
        return []
    return [f"{MARKER}: {option} turns isolation off, {marked} marked test(s) run in this process"]


def run_in_clean_process(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """The `pytest_runtest_protocol` of an isolated test: run it elsewhere and replay its reports here."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    replay = Replay(item)
    # What goes wrong before there is a process is an error in this test's setup, and no other's.
    prepared = pytest.CallInfo.from_call(
        lambda: _prepare(item, nextitem), when="setup", reraise=(pytest.exit.Exception, KeyboardInterrupt)
    )
    if prepared.excinfo is not None:
        replay.log(item.ihook.pytest_runtest_makereport(item=item, call=prepared))
        replay.close_test()
    else:
        process, job = prepared.result
        try:
            ending = Processes.of(item.config).run(process, item, job, replay.receive)
        except ZygoteError as error:
            replay.refuse(str(error))
        else:
            replay.close(ending, job.timeout)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _prepare(item: pytest.Item, nextitem: pytest.Item | None) -> tuple[Zygote | Interpreter, TestJob]:
    """What `item` asks for, and the process that will do it."""
    # This test sets up nothing here, so nobody else will tear down what the tests before it have left for those of
    # their module: pytest would find it when it sets up the next one, and refuse.
    runner: Any = item.config.pluginmanager.get_plugin("runner")
    runner.pytest_runtest_teardown(item=item, nextitem=nextitem)
    try:
        isolation = Isolation.of(item)
        if isolation.memory_limit is not None and (reason := why_memory_is_unlimited()):
            item.warn(pytest.PytestWarning(f"{MARKER}: {reason}"))
        job = test_job(item, timeout=isolation.timeout, memory_limit=isolation.memory_limit)
        return Processes.of(item.config).ready(isolation.method), job
    except (IsolationError, ZygoteError) as error:
        # The message is all that there is to say: no traceback of ours.
        raise pytest.fail.Exception(str(error), pytrace=False) from None
