"""The marker `fresh_process`: a test that runs in a clean process, with the reports of an ordinary one."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_tensorizer.options import Settings
from pytest_tensorizer.process.conversation import UnfitError, ZygoteError
from pytest_tensorizer.process.ending import Ending
from pytest_tensorizer.process.interpreter import Interpreter, fresh_interpreter
from pytest_tensorizer.process.limits import parse_method, parse_size, parse_timeout, why_memory_is_unlimited
from pytest_tensorizer.process.pytest_child import CLEAN, Collection, FreshTestJob, TestJob, path_and_names
from pytest_tensorizer.process.replay import Replay
from pytest_tensorizer.process.zygote import Zygote

MARKER = "fresh_process"
_count = itertools.count()


@dataclass(frozen=True)
class Isolation:
    """What the marker asks for. `timeout` in seconds, `memory_limit` in bytes."""

    timeout: float | None = 60.0
    memory_limit: int | None = None
    method: str = "zygote"

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
        limit = merged.get("memory_limit")
        try:
            return cls(
                parse_timeout(merged.get("timeout", 60.0)),
                None if limit is None else parse_size(limit),
                parse_method(merged.get("method")),
            )
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None


def is_marked(item: pytest.Item) -> bool:
    """Whether `item` is to run in a clean process: it has the marker, or all tests are."""
    return item.get_closest_marker(MARKER) is not None or Settings.of(item.config).fresh_process


def runs_in_clean_process(item: pytest.Item) -> bool:
    """Whether `item` is marked, this process is not yet the clean one, and nobody wants to debug."""
    return is_marked(item) and CLEAN not in item.config.stash and not _debugs(item.config)


def isolation_is_off(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    """For `pytest_report_collectionfinish`: the line that says so, where the terminal is needed."""
    marked = sum(map(is_marked, items)) if _debugs(config) else 0
    if not marked:
        return []
    option = next(flag for name, flag in _NEED_A_TERMINAL.items() if config.getoption(name, default=False))
    return [f"{MARKER}: {option} turns isolation off, {marked} marked test(s) run in this process"]


_NEED_A_TERMINAL = {"usepdb": "--pdb", "trace": "--trace", "setupshow": "--setup-show", "setuponly": "--setup-only"}
"""Options of pytest that want the terminal, which a clean process does not have."""


def _debugs(config: pytest.Config) -> bool:
    return any(config.getoption(option, default=False) for option in _NEED_A_TERMINAL)


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
        isolation, run = prepared.result
        try:
            ending = run(replay)
        except ZygoteError as error:
            replay.refuse(str(error))
        else:
            replay.close(ending, isolation.timeout)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _prepare(item: pytest.Item, nextitem: pytest.Item | None) -> tuple[Isolation, Callable[[Replay], Ending]]:
    """Get a process for `item`. Returns what runs the test there."""
    # This test sets up nothing here, so nobody else will tear down what the tests before it have left for those of
    # their module: pytest would find it when it sets up the next one, and refuse.
    runner: Any = item.config.pluginmanager.get_plugin("runner")
    runner.pytest_runtest_teardown(item=item, nextitem=nextitem)
    try:
        isolation = Isolation.of(item)
    except ValueError as error:
        raise _failure(error) from None
    if isolation.memory_limit is not None and (reason := why_memory_is_unlimited()):
        item.warn(pytest.PytestWarning(f"{MARKER}: {reason}"))
    processes = Processes.of(item.config)
    job = _job(item, isolation)
    try:
        if isolation.method == "zygote" and processes.zygotes_are_fit:
            zygote = processes.zygote()
            return isolation, lambda replay: processes.run_in(zygote, item, job, isolation, replay)
        fresh = fresh_interpreter()
        return isolation, lambda replay: processes.run_afresh(fresh, item, job, isolation, replay)
    except ZygoteError as error:
        raise _failure(error) from None


def _failure(error: Exception) -> BaseException:
    """The message is all that there is to say: no traceback of ours, nor of the exceptions that led to it."""
    return pytest.fail.Exception(str(error), pytrace=False)


class Processes:
    """The clean processes of one session: a zygote, started by the first test that wants it, or fresh ones."""

    _KEY: pytest.StashKey[Processes] = pytest.StashKey()
    _STARTS = 2
    """After so many zygotes in a row that would not start, no more are tried: each may take a minute."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._zygote: Zygote | None = None
        self._failed: list[ZygoteError] = []
        self.zygotes_are_fit = True
        config.add_cleanup(self.close)

    @classmethod
    def of(cls, config: pytest.Config) -> Processes:
        if cls._KEY not in config.stash:
            config.stash[cls._KEY] = cls(config)
        return config.stash[cls._KEY]

    def close(self) -> None:
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None

    def zygote(self) -> Zygote:
        """That of this session, or a new one where it is gone. Raises ZygoteError if it does not start."""
        if self._zygote is not None and not self._zygote.is_alive():
            self.close()
        if self._zygote is None:
            if len(self._failed) >= self._STARTS:
                raise self._failed[-1]
            try:
                # This module is asked about every test, in a clean process too.
                preload = (*Settings.of(self._config).fresh_process_preload.split(), __name__)
                self._zygote = Zygote(self._collection(preload=preload))
            except ZygoteError as error:
                self._failed.append(error)
                raise
            self._failed.clear()
        return self._zygote

    def run_in(self, zygote: Zygote, item: pytest.Item, job: TestJob, isolation: Isolation, replay: Replay) -> Ending:
        try:
            return zygote.run(job, replay.receive, timeout=isolation.timeout, capture=job.capture)
        except UnfitError:
            self.zygotes_are_fit = False
            self.close()
            item.warn(
                pytest.PytestWarning(
                    f"{MARKER}: collecting the tests initialises an accelerator, so each of them runs in a fresh "
                    "interpreter, which is slower. --accelerator-guard=error names who does it"
                )
            )
            return self.run_afresh(fresh_interpreter(), item, job, isolation, replay)

    def run_afresh(
        self, fresh: Zygote | Interpreter, item: pytest.Item, job: TestJob, isolation: Isolation, replay: Replay
    ) -> Ending:
        collection = self._collection(argument=_argument(item, job.path, job.names))
        with fresh:
            return fresh.run(
                FreshTestJob(collection, job), replay.receive, timeout=isolation.timeout, capture=job.capture
            )

    def _collection(self, argument: str | None = None, preload: tuple[str, ...] = ()) -> Collection:
        return Collection(
            # As xdist does: from the parsed `config.args` the root conftest would be lost, and overrides with it.
            args=tuple(str(arg) for arg in self._config.invocation_params.args),
            directory=str(self._config.invocation_params.dir),
            basetemp=str(_basetemp(self._config)),
            argument=argument,
            preload=preload,
        )


def _job(item: pytest.Item, isolation: Isolation) -> TestJob:
    variables: dict[str, str] = {}
    for more in item.ihook.pytest_tensorizer_child_environment(item=item):
        variables.update(more)
    path, names = path_and_names(item)
    return TestJob(
        nodeid=item.nodeid,
        path=path,
        names=names,
        basetemp=str(_basetemp(item.config)),
        capture=item.config.getoption("capture") != "no",
        memory_limit=isolation.memory_limit,
        variables=variables,
    )


def _argument(item: pytest.Item, path: str, names: tuple[str, ...]) -> str:
    """What a fresh interpreter has to collect to find `item`: its file and function, or its id if it is of no file.

    Without the parameters, so that one which makes other ones can say which.
    """
    if not any(isinstance(node, pytest.Directory) for node in item.listchain()):
        return item.nodeid
    last = (item.originalname or item.name) if isinstance(item, pytest.Function) else item.name
    return "::".join([path, *names[:-1], last])


def _basetemp(config: pytest.Config) -> Path:
    """A directory for the `tmp_path` of a child, inside that of this session where there is one."""
    factory = getattr(config, "_tmp_path_factory", None)
    base = factory.getbasetemp() if factory is not None else Path(tempfile.mkdtemp(prefix="pytest-tensorizer-"))
    return Path(base) / f"clean-{next(_count)}"
