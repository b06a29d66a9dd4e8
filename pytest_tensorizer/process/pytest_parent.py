"""The clean processes of a pytest session, and what is asked of them: the counterpart of `pytest_child`."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pytest_tensorizer.options import Settings
from pytest_tensorizer.process.conversation import UnfitError, ZygoteError
from pytest_tensorizer.process.ending import Ending
from pytest_tensorizer.process.interpreter import Interpreter, fresh_interpreter
from pytest_tensorizer.process.pytest_child import Collection, FreshTestJob, TestJob, path_and_names
from pytest_tensorizer.process.zygote import Zygote

_UNFIT = (
    "fresh_process: collecting the tests initialises an accelerator, so each runs in a fresh interpreter, which "
    "is slower. --accelerator-guard=error names who does it"
)
_count = itertools.count()


class Processes:
    """The clean processes of one session: a zygote, started by the first test that wants it, or fresh ones."""

    _KEY: pytest.StashKey[Processes] = pytest.StashKey()
    _STARTS = 2
    """After so many zygotes in a row that would not start, no more are tried: each may take a minute."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._zygote: Zygote | None = None
        self._failed: list[ZygoteError] = []
        self._zygotes_are_fit = True
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

    def ready(self, method: str) -> Zygote | Interpreter:
        """A process that waits for a test: the zygote of this session, or a fresh interpreter.

        Raises ZygoteError if it does not start.
        """
        return self._living_zygote() if method == "zygote" and self._zygotes_are_fit else fresh_interpreter()

    def _living_zygote(self) -> Zygote:
        if self._zygote is not None and not self._zygote.is_alive():
            self.close()
        if self._zygote is None:
            if len(self._failed) >= self._STARTS:
                raise self._failed[-1]
            try:
                # The marker is looked at for every test, in a clean process too.
                marker = "pytest_tensorizer.process.marker"
                self._zygote = Zygote(self._collection(preload=(*self._preload(), marker)))
            except ZygoteError as error:
                self._failed.append(error)
                raise
            self._failed.clear()
        return self._zygote

    def _preload(self) -> list[str]:
        settings = Settings.of(self._config)
        names = settings.fresh_process_preload.split()
        missing = [name for name in names if find_spec(name.partition(".")[0]) is None]
        if missing and "fresh-process-preload" in settings.explicit:
            raise ZygoteError(f"fresh_process_preload: there is no module {missing[0]!r}")
        return names

    def run(
        self,
        process: Zygote | Interpreter,
        item: pytest.Item,
        job: TestJob,
        receive: Callable[[tuple[Any, ...]], None],
    ) -> Ending:
        """Have `job` done by `process`, which :meth:`ready` has given. Raises ZygoteError if it cannot be."""
        if process is self._zygote:
            try:
                return process.run(job, receive, timeout=job.timeout, capture=job.capture)
            except UnfitError:
                self._zygotes_are_fit = False
                self.close()
                item.warn(pytest.PytestWarning(_UNFIT))
                process = fresh_interpreter()
        collection = self._collection(argument=_argument(item, job.path, job.names))
        with process:
            return process.run(FreshTestJob(collection, job), receive, timeout=job.timeout, capture=job.capture)

    def _collection(self, argument: str | None = None, preload: tuple[str, ...] = ()) -> Collection:
        return Collection(
            # As xdist does: from the parsed `config.args` the root conftest would be lost, and overrides with it.
            args=tuple(str(arg) for arg in self._config.invocation_params.args),
            directory=str(self._config.invocation_params.dir),
            basetemp=str(_basetemp(self._config)),
            argument=argument,
            preload=preload,
        )


def test_job(item: pytest.Item, *, timeout: float | None, memory_limit: int | None) -> TestJob:
    """The job to run `item`, with what plugins have to say about its environment."""
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
        timeout=timeout,
        memory_limit=memory_limit,
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
