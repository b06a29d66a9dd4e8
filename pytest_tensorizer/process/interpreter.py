"""A fresh interpreter for one job on systems that have no zygote, because no `pidfd_open`: macOS, the BSDs."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from pytest_tensorizer.process import child
from pytest_tensorizer.process.child import Job
from pytest_tensorizer.process.conversation import ZygoteError, converse, start_interpreter
from pytest_tensorizer.process.ending import Ending
from pytest_tensorizer.process.limits import zygotes_are_available
from pytest_tensorizer.process.transport import ABORT, KILL, Channel, unframed
from pytest_tensorizer.process.zygote import Zygote

BOOTSTRAP = """\
import pickle, sys
path, fd = pickle.load(sys.stdin.buffer)
sys.path[:] = path
from pytest_tensorizer.process.interpreter import main
main(fd)
"""


def main(messages: int) -> None:
    """In the child: do the job that standard input has, and end with the parent, which keeps that open."""
    gc.disable()  # until the imports are over: see `imports_are_over`
    os.set_inheritable(messages, False)
    payload = pickle.load(sys.stdin.buffer)
    parent = os.dup(0)
    with open(os.devnull) as null:
        os.dup2(null.fileno(), 0)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    child.run_job(payload, messages, None, forked=False)


def _end_with(parent: int) -> None:
    os.read(parent, 1)
    os.killpg(0, signal.SIGKILL)


class Interpreter:
    """A fresh interpreter for one job. A thread of this process says what a zygote would say."""

    exit_descriptor = None

    def __init__(self) -> None:
        self.control, self._report = os.pipe()
        self._buffer = bytearray()
        self._process: subprocess.Popen[bytes] | None = None

    def run(
        self, job: Job, receive: Callable[[tuple[Any, ...]], None], *, timeout: float | None, capture: bool = True
    ) -> Ending:
        """Do `job` in the interpreter: see `converse`."""
        return converse(self, pickle.dumps(({}, job)), receive, timeout=timeout, capture=capture)

    def begin(self, payload: bytes, descriptors: list[int]) -> None:
        messages, *outputs = descriptors
        self._process = start_interpreter(BOOTSTRAP, outputs, messages)
        self._watch = threading.Thread(target=self._wait, args=(self._process.pid,), daemon=True)
        self._watch.start()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # a child that dies at once: its ending tells why
            # Left open: its end tells the child that this process is gone.
            self._process.stdin.write(pickle.dumps((sys.path, messages)) + pickle.dumps(payload))
            self._process.stdin.flush()

    def _wait(self, pid: int) -> None:
        # Until it is reaped, the number of its group can belong to nobody else.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        self._returncode = os.waitstatus_to_exitcode(status)
        peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        Channel(lambda data: os.write(self._report, data)).send("exited", self._returncode, peak)

    def told(self) -> list[tuple[Any, ...]]:
        self._buffer += os.read(self.control, 1 << 16)
        return [pickle.loads(data) for data in unframed(self._buffer)]

    def ask(self, kind: bytes) -> None:
        assert self._process is not None
        if self._watch.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGABRT if kind == ABORT else signal.SIGKILL)

    def gone(self) -> str:
        raise AssertionError("a thread of this process does not go")

    def close(self) -> None:
        if self._process is not None:
            self.ask(KILL)
            self._watch.join()
            self._process.returncode = self._returncode  # reaped already
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process = None
            os.close(self.control)
            os.close(self._report)

    def __enter__(self) -> Interpreter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def fresh_interpreter() -> Zygote | Interpreter:
    """What does one job in an interpreter that has imported nothing.

    Raises:
        ZygoteError: it could not be started, or this is Windows.
    """
    if not hasattr(os, "killpg"):
        raise ZygoteError(f"clean processes need Linux or macOS, and this is {sys.platform}")
    return Zygote() if zygotes_are_available() else Interpreter()
