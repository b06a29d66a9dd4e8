"""The parent's side of a zygote: starting it, having it do jobs, and ending it with all that it has started."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_tensorizer.process.child import Job, changes
from pytest_tensorizer.process.conversation import (
    GRACE,
    SECONDS_TO_OBEY,
    ZygoteError,
    converse,
    start_interpreter,
    text_of,
)
from pytest_tensorizer.process.ending import Ending, describe_status
from pytest_tensorizer.process.server import BOOTSTRAP, Template
from pytest_tensorizer.process.transport import HEADER, JOB, unframed, wait


class Zygote:
    """A fresh interpreter that prepares `template` and then forks a child for each job, one at a time.

    Without a template the first job begins at once, in an interpreter that has imported nothing. A zygote that fails
    is `dead` from then on.

    Raises:
        ZygoteError: it could not be started, or had not got ready after `start_timeout` seconds.
    """

    def __init__(self, template: Template | None = None, *, start_timeout: float | None = 600.0) -> None:
        self._stack = contextlib.ExitStack()
        self._owner = os.getpid()
        self._buffer = bytearray()
        self.dead = True
        try:
            self._start(template, start_timeout)
        except OSError as error:
            self.close()
            raise ZygoteError(f"no clean process could be started: {error}") from error
        except BaseException:
            self.close()
            raise

    def _start(self, template: Template | None, timeout: float | None) -> None:
        started = pickle.dumps(template)
        self._control, theirs = socket.socketpair()
        self._stack.callback(self._control.close)
        self._logs = [tempfile.TemporaryFile(), tempfile.TemporaryFile()]  # noqa: SIM115 - closed with the stack
        for log in self._logs:
            self._stack.callback(log.close)
        self._environment = dict(os.environ)
        with theirs:
            self._process = start_interpreter(BOOTSTRAP, self._logs, theirs.fileno())
            self.dead = False
            self._exited = os.pidfd_open(self._process.pid)
            self._stack.callback(os.close, self._exited)
            assert self._process.stdin is not None
            # One that dies at once breaks the pipe; its ending tells why.
            with contextlib.suppress(BrokenPipeError), self._process.stdin:
                self._process.stdin.write(pickle.dumps((sys.path, theirs.fileno(), os.getpid())) + started)
        deadline = None if timeout is None else time.monotonic() + timeout
        messages: list[tuple[Any, ...]] = []
        while not messages:
            ready = wait([self.control, self._exited], None if deadline is None else deadline - time.monotonic())
            messages = self.told() if self.control in ready else []
            if not ready or (not messages and self._exited in ready):
                break
        if messages != [("ready",)]:
            raise ZygoteError(self._why_not_ready(messages, timeout))

    def _why_not_ready(self, messages: list[tuple[Any, ...]], timeout: float | None) -> str:
        if messages:
            how = f"could not get ready:\n{messages[0][1]}"
        elif wait([self._exited], 0):
            how = f"{describe_status(self._status())} before it was ready"
        else:
            os.kill(self._process.pid, signal.SIGABRT)  # for its stacks
            wait([self._exited], GRACE)
            how = f"was not ready after {timeout:g} s"
        texts = [("stdout", text_of(self._logs[0])), ("stderr", text_of(self._logs[1]))]
        printed = "".join(f"\n--- its {name} ---\n{text}" for name, text in texts if text)
        return f"the process that was to run it {how}{printed}"

    @property
    def control(self) -> int:
        return self._control.fileno()

    @property
    def exit_descriptor(self) -> int:
        return self._exited

    def is_alive(self) -> bool:
        return not self.dead and not wait([self._exited], 0)

    def gone(self) -> str:
        """How the zygote, which is gone, has ended: "the process that watched it died of SIGKILL"."""
        return f"the process that watched it {describe_status(self._status())}"

    def _status(self) -> int:
        # Not reaped by this: see `close`.
        result = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        assert result is not None
        return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status

    def run(
        self, job: Job, receive: Callable[[tuple[Any, ...]], None], *, timeout: float | None, capture: bool = True
    ) -> Ending:
        """Do `job` in a child: see :func:`converse`."""
        payload = pickle.dumps((changes(self._environment, dict(os.environ)), job))
        return converse(self, payload, receive, timeout=timeout, capture=capture)

    def begin(self, payload: bytes, descriptors: list[int]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it is dead, as will be seen
            socket.send_fds(self._control, [HEADER.pack(JOB, len(payload))], descriptors)
            self._control.sendall(payload)

    def ask(self, kind: bytes) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._control.sendall(HEADER.pack(kind, 0))

    def told(self) -> list[tuple[Any, ...]]:
        """What the zygote has said by now; waits for something if there is nothing yet."""
        with contextlib.suppress(ConnectionResetError):
            self._buffer += self._control.recv(1 << 16)
        return [pickle.loads(data) for data in unframed(self._buffer)]

    def close(self) -> None:
        """End it, and whatever of its session is left. Does nothing in a fork of the process that started it."""
        if self._owner == os.getpid() and not self.dead:
            self.dead = True
            self._control.close()  # which asks it to end
            if not wait([self._exited], SECONDS_TO_OBEY):
                self._process.kill()
                wait([self._exited])
            # Until it is reaped, the number of its session can belong to nobody else.
            while left := _session(self._process.pid):
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            self._process.wait()
        self._stack.close()

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _session(number: int) -> list[int]:
    """The processes of the session `number` that still run, but for its leader."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == number:
            continue
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(session) == number and state not in "ZX":
                found.append(int(entry.name))
    return found
