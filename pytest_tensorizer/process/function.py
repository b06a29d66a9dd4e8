"""Calling one function in a clean process."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pytest_tensorizer.process.child import Channel
from pytest_tensorizer.process.limits import parse_size, parse_timeout
from pytest_tensorizer.process.spawn import Ending, run_child

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
    function: Callable[..., Any]
    args: tuple[Any, ...]
    memory_limit: int | None
    variables: dict[str, str] = field(default_factory=dict)

    def run(self, channel: Channel) -> None:
        try:
            value = self.function(*self.args)
            try:
                returned = pickle.dumps(value)
            except Exception as error:
                name, kind = _name(self.function), type(value).__qualname__
                raise TypeError(f"the result of {name}(), a {kind}, cannot be pickled: {error}") from error
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - goes to the caller; what pytest.fail() raises is no Exception
            summary = f"{type(error).__name__}: {error}"
            channel.send("raised", _pickled(error), summary, traceback.format_exc())
        else:
            channel.send("returned", returned)


def run_isolated(
    function: Callable[..., T], *args: Any, timeout: float | None = 60.0, memory_limit: int | str | None = None
) -> T:
    """Call `function(*args)` in a fresh interpreter and return what it returns.

    Function, arguments and result travel pickled: the function stands at the top level of a module that can be
    imported. `timeout` is in seconds; `memory_limit` in bytes, or "4GiB", beyond which Python code sees MemoryError.

    Raises:
        IsolatedError: the process crashed, was killed, exited or ran out of time; the message has the signal, the
            Python stacks and what had been printed.
        TypeError: function, arguments or result cannot be pickled.
        Exception: whatever `function` raised, with the child's traceback as its cause. One that cannot be pickled
            comes as a RuntimeError with its name and message.
    """
    limit = None if memory_limit is None else parse_size(memory_limit)
    seconds = parse_timeout(timeout)
    call = _Call(function, args, limit)
    _check_it_travels(call)
    outcome: list[tuple[Any, ...]] = []
    ending = run_child(call, outcome.append, timeout=seconds)
    kind = outcome[0][0] if outcome else None
    if kind == "returned" and ending.clean:
        return _result(outcome[0][1], function)
    if kind == "raised":
        _, data, summary, text = outcome[0]
        raise _unpickled(data, summary) from RemoteTraceback(text)
    detail = str(outcome[0][1]) + "\n" if kind == "broken" else ""
    output = "".join(f"\n--- {name} ---\n{text}" for name, text in
                     (("stdout", ending.stdout), ("stderr", ending.stderr)) if text)  # fmt: skip
    raise IsolatedError(f"{detail}the clean process of {_name(function)}() {ending.describe()}{output}", ending)


def _result(data: bytes, function: Callable[..., T]) -> T:
    try:
        value: T = pickle.loads(data)
    except Exception as error:
        what = f"the result of {_name(function)}() cannot be read here"
        raise TypeError(f"{what}: {type(error).__name__}: {error}") from error
    return value


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))


def _check_it_travels(call: _Call) -> None:
    """Say what to do about a function that the child could not find, rather than how pickle puts it."""
    reason = "it stands in __main__" if getattr(call.function, "__module__", None) == "__main__" else ""
    if not reason:
        try:
            pickle.dumps(call.function)
        except Exception as error:  # noqa: BLE001 - pickling runs code of the object's own
            reason = f"{type(error).__name__}: {error}"
    if reason:
        raise TypeError(
            f"the clean process could not find {_name(call.function)}() ({reason}): "
            "define it at the top level of a module that can be imported"
        )
    try:
        pickle.dumps(call.args)
    except Exception as error:
        raise TypeError(f"an argument for {_name(call.function)}() cannot be pickled: {error}") from error


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
