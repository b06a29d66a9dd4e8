"""Calling one function in a clean process."""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pytest_tensorizer.process.child import imports_are_over
from pytest_tensorizer.process.ending import Ending
from pytest_tensorizer.process.interpreter import fresh_interpreter
from pytest_tensorizer.process.limits import (
    MemoryLimit,
    parse_method,
    parse_size,
    parse_timeout,
    why_memory_is_unlimited,
)
from pytest_tensorizer.process.server import preload
from pytest_tensorizer.process.stacks import readable
from pytest_tensorizer.process.transport import Channel
from pytest_tensorizer.process.zygote import Zygote

T = TypeVar("T")


class IsolatedError(RuntimeError):
    """The process ended without a result: it crashed, ran out of time, or exited. `ending` has the facts."""

    def __init__(self, message: str, ending: Ending) -> None:
        super().__init__(message)
        self.ending = ending

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.ending)  # it may itself come out of a clean process


class RemoteTraceback(Exception):
    """The traceback in the child, as text: the cause of the exception that is raised in the parent."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


@dataclass(frozen=True)
class _Call:
    """`function` and its arguments, pickled: to be read once `path` is there to find its module."""

    pickled: bytes
    name: str
    path: tuple[str, ...]
    directory: str
    memory_limit: int | None
    variables: dict[str, str] = field(default_factory=dict)

    def run(self, channel: Channel, prepared: Any) -> None:
        sys.path[:] = self.path
        os.chdir(self.directory)
        try:
            function, args = pickle.loads(self.pickled)
        except BaseException:
            channel.send("broken", f"{self.name}() could not be read in the child:\n" + traceback.format_exc())
            raise
        imports_are_over()
        limit = MemoryLimit(self.memory_limit)
        try:
            with limit:
                value = function(*args)
            try:
                returned = pickle.dumps(value)
            except Exception as error:
                kind = type(value).__qualname__
                raise TypeError(f"the result of {self.name}(), a {kind}, cannot be pickled: {error}") from error
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - goes to the caller; what pytest.fail() raises is no Exception
            if isinstance(error, MemoryError) and not error.args:
                error.args = (limit.explain(error, f"{self.name}()"),)
            summary = f"{type(error).__name__}: {error}"
            channel.send("raised", _pickled(error), summary, traceback.format_exc())
        else:
            channel.send("returned", returned)


@dataclass(frozen=True)
class _Modules:
    """The template of a zygote for functions."""

    names: tuple[str, ...]

    def prepare(self, serve: Callable[[Any], None]) -> str:
        preload(self.names)
        serve(self)
        return ""


def run_isolated(
    function: Callable[..., T],
    *args: Any,
    timeout: float | None = 60.0,
    memory_limit: int | str | None = None,
    method: str | None = None,
) -> T:
    """Call `function(*args)` in a clean process and return what it returns.

    Function, arguments and result travel pickled: the function stands at the top level of a module that can be
    imported. `timeout` is in seconds; `memory_limit`, in bytes or as "4GiB", is how much the call may allocate: beyond
    it Python code sees MemoryError.

    `method` is "zygote": a fork of a process that was started for that, and has imported torch if this one has; or
    "spawn": a fresh interpreter, which is slower and has imported nothing. Without it, the zygote on Linux.

    Raises:
        IsolatedError: the process crashed, was killed, exited or ran out of time; the message has the signal, the
            Python stacks and what had been printed.
        ZygoteError: there is no process, and the message has the reason.
        TypeError: function, arguments or result cannot be pickled.
        ValueError: a limit or method that makes no sense.
        Exception: whatever `function` raised, with the child's traceback as its cause. One that cannot be pickled
            comes as a RuntimeError with its name and message.
    """
    __tracebackhide__ = True
    limit = None if memory_limit is None else parse_size(memory_limit)
    if limit is not None and (reason := why_memory_is_unlimited()):
        warnings.warn(f"run_isolated(): {reason}", RuntimeWarning, stacklevel=2)
    seconds = parse_timeout(timeout)
    chosen = parse_method(method)
    call = _Call(_travelling(function, args), _name(function), tuple(sys.path), os.getcwd(), limit)
    outcome: list[tuple[Any, ...]] = []
    with fresh_interpreter() if chosen == "spawn" else _ZYGOTES.borrowed() as process:
        ending = process.run(call, outcome.append, timeout=seconds)
    kind = outcome[0][0] if outcome else None
    if kind == "returned" and ending.clean:
        return _result(outcome[0][1], function)
    if kind == "raised":
        _, data, summary, text = outcome[0]
        raise _unpickled(data, summary) from RemoteTraceback(text)
    detail = str(outcome[0][1]) + "\n" if kind == "broken" else ""
    outputs = (("stdout", ending.stdout), ("stderr", readable(ending)))
    output = "".join(f"\n--- {name} ---\n{text}" for name, text in outputs if text)
    raise IsolatedError(f"{detail}the clean process of {_name(function)}() {ending.describe()}{output}", ending)


class _Pool:
    """The zygotes of this process: as many as there are threads that have called at the same time."""

    def __init__(self) -> None:
        self._idle: list[Zygote] = []
        self._owner = 0

    @contextlib.contextmanager
    def borrowed(self) -> Iterator[Zygote]:
        if self._owner != os.getpid():  # a fork of this process has its own, and forgets ours
            self._idle, self._owner = [], os.getpid()
            atexit.register(self._close, self._owner)
        zygote = self._take() or Zygote(_Modules(("torch",) if "torch" in sys.modules else ()))
        try:
            yield zygote
        finally:
            if not zygote.dead:
                self._idle.append(zygote)

    def _take(self) -> Zygote | None:
        while True:
            try:
                zygote = self._idle.pop()  # the last one first: the memory of that one is warm
            except IndexError:  # none, or another thread was faster
                return None
            if zygote.is_alive():
                return zygote
            zygote.close()

    def _close(self, owner: int) -> None:
        while self._owner == owner == os.getpid() and self._idle:
            self._idle.pop().close()


_ZYGOTES = _Pool()


def _result(data: bytes, function: Callable[..., T]) -> T:
    try:
        value: T = pickle.loads(data)
    except Exception as error:
        what = f"the result of {_name(function)}() cannot be read here"
        raise TypeError(f"{what}: {type(error).__name__}: {error}") from error
    return value


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))


def _travelling(function: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    """Function and arguments, pickled. Says what to do about a function that the child could not find."""
    reason = "it stands in __main__" if getattr(function, "__module__", None) == "__main__" else ""
    if not reason:
        try:
            pickle.dumps(function)
        except Exception as error:  # noqa: BLE001 - pickling runs code of the object's own
            reason = f"{type(error).__name__}: {error}"
    if reason:
        raise TypeError(
            f"the clean process could not find {_name(function)}() ({reason}): "
            "define it at the top level of a module that can be imported"
        )
    try:
        return pickle.dumps((function, args))
    except Exception as error:
        raise TypeError(f"an argument for {_name(function)}() cannot be pickled: {error}") from error


def _pickled(error: BaseException) -> bytes | None:
    try:
        return pickle.dumps(error)
    except Exception:  # noqa: BLE001 - nor can the caller do without hearing of one that cannot be pickled
        return None


def _unpickled(data: bytes | None, summary: str) -> BaseException:
    """The exception of the child, or its name and message where it does not survive pickling."""
    try:
        error = None if data is None else pickle.loads(data)
    except Exception:  # noqa: BLE001 - an exception with an __init__ of its own
        error = None
    return error if isinstance(error, BaseException) else RuntimeError(summary)
