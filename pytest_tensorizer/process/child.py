"""What runs inside a clean process: it takes one job, does it, and sends back what happened.

Messages leave pickled through a pipe of their own, so that whatever the code under test prints, closes or breaks,
the two do not get mixed up.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import os
import pickle
import sys
import threading
import traceback
import weakref
from collections.abc import Mapping
from typing import Any, NoReturn, Protocol

from pytest_tensorizer.process.transport import Channel


class Job(Protocol):
    """What a clean process does. Pickled by the parent; `run` is called in the child."""

    @property
    def variables(self) -> Mapping[str, str]:
        """Put into the environment before anything else happens."""

    def run(self, channel: Channel, prepared: Any) -> None:
        """Do it, and send messages: tuples whose first element says what they are.

        `prepared` is what the zygote has got ready, and None in a fresh interpreter.
        """


def changes(before: dict[str, str], now: dict[str, str]) -> dict[str, str | None]:
    """What has happened to the environment; None is for what is gone."""
    changed: dict[str, str | None] = {name: value for name, value in now.items() if before.get(name) != value}
    changed.update(dict.fromkeys(before.keys() - now.keys()))
    return changed


def run_job(payload: bytes, messages: int, prepared: Any, *, forked: bool) -> None:
    """Do the job in `payload`. What would keep the parent from hearing of a failure is set up first.

    `forked` is whether this process comes from a zygote that has got something ready.
    """
    # A copy of standard error: the code under test may close or replace its own.
    faulthandler.enable(file=os.dup(2), all_threads=True)
    channel = Channel(lambda data: os.write(messages, data))
    try:
        job: Job
        changed, job = pickle.loads(payload)
    except BaseException:
        channel.send("broken", "the job could not be read in the child:\n" + traceback.format_exc())
        raise
    for name, value in {**changed, **job.variables}.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    if forked and _accelerator_is_lost():
        channel.send("unfit")
        return
    job.run(channel, prepared)
    channel.send("done")


def imports_are_over() -> None:
    """Turn on the garbage collector of a fresh interpreter, which begins without.

    Most of its time goes into imports, and a quarter of that into collecting garbage which is none: modules stay.
    (Not `gc.freeze()`: what is frozen is hidden from `gc.get_referrers`.)
    """
    gc.enable()


def forget_exit_handlers() -> None:
    """What the zygote wants done when *it* exits is not for its children to do."""
    global _finalizers
    atexit._clear()
    _finalizers = weakref.finalize._registry  # type: ignore[attr-defined]
    weakref.finalize._registry = {}  # type: ignore[attr-defined]
    if weakref.finalize._registered_with_atexit:  # type: ignore[attr-defined]
        atexit.register(weakref.finalize._exitfunc)  # type: ignore[attr-defined]


_finalizers: Any = None
"""Those of the zygote, kept because to let go of them all would take 2 ms."""


def run_job_and_exit(payload: bytes, messages: int, prepared: Any) -> NoReturn:
    """Do the job in a fork of the zygote, and end as an interpreter does.

    But for taking down what it shares with the zygote, which would cost more than a test.
    """
    code: Any = 0
    try:
        try:
            run_job(payload, messages, prepared, forked=True)
        except SystemExit as exit:
            code = exit.code or 0
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        _save_coverage()
    except BaseException:  # noqa: BLE001 - it must not get into the frames of the zygote, which lie below
        traceback.print_exc()
        code = 1
    if not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    flush()
    os._exit(code & 0xFF)


def _save_coverage() -> None:
    """Its exit handler is one of the forgotten ones."""
    coverage = sys.modules.get("coverage")
    measuring = coverage.Coverage.current() if coverage is not None else None
    if measuring is not None:
        measuring.stop()
        measuring.save()


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or replaced, by the test
            stream.flush()


def _accelerator_is_lost() -> bool:
    """Whether torch says that the zygote had initialised an accelerator, which no fork of it can use."""
    torch = sys.modules.get("torch")
    backends = [getattr(torch, name, None) for name in ("cuda", "xpu")]
    return any(backend is not None and getattr(backend, "_is_in_bad_fork", bool)() for backend in backends)
