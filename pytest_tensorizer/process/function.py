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
        except Exception as error:  # noqa: BLE001 - whatever the function raises goes to the caller
            text = traceback.format_exc()
            try:
                pickle.loads(pickle.dumps(error))
            except Exception:  # noqa: BLE001 - nor can the caller do without hearing of one that cannot be pickled
                error = RuntimeError(f"{type(error).__name__}: {error}")
            channel.send("raised", error, text)
        else:
            channel.send("returned", value)


def run_isolated(
    function: Callable[..., T], *args: Any, timeout: float | None = 60.0, memory_limit: int | str | None = None
) -> T:
    """Call `function(*args)` in a fresh interpreter and return what it returns.

    Function, arguments and result travel pickled: the function stands at the top level of a module that can be
    imported. `timeout` is in seconds; `memory_limit` in bytes, or "4GiB", beyond which Python code sees MemoryError.

    Raises:
        IsolatedError: the process crashed, was killed, exited or ran out of time; the message has the signal, the
            Python stacks and what had been printed.
        Exception: whatever `function` raised, with the child's traceback as its cause.
    """
    limit = None if memory_limit is None else parse_size(memory_limit)
    outcome: list[tuple[Any, ...]] = []
    ending = run_child(_Call(function, args, limit), outcome.append, timeout=parse_timeout(timeout))
    kind = outcome[0][0] if outcome else None
    if kind == "returned" and ending.clean:
        value: T = outcome[0][1]
        return value
    if kind == "raised":
        raise outcome[0][1] from RemoteTraceback(outcome[0][2])
    detail = str(outcome[0][1]) + "\n" if kind == "broken" else ""
    output = "".join(f"\n--- {name} ---\n{text}" for name, text in
                     (("stdout", ending.stdout), ("stderr", ending.stderr)) if text)  # fmt: skip
    name = getattr(function, "__qualname__", repr(function))
    raise IsolatedError(f"{detail}the clean process of {name}() {ending.describe()}{output}", ending)
