"""The parent's side of a zygote: starting it, having it do jobs, and ending it with all that it has started."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from pytest_tensorizer.process.child import Job, unframed
from pytest_tensorizer.process.ending import Ending, describe_status
from pytest_tensorizer.process.server import ABORT, BOOTSTRAP, HEADER, JOB, KILL, Template

_GRACE = 2.0
"""Seconds between the signal that asks for every thread's stack and the one that kills."""
_SECONDS_TO_OBEY = 10.0
"""Seconds for what takes a zygote milliseconds: then it has itself to be killed."""


class ZygoteError(RuntimeError):
    """The process that was to do the job could not be started. The message has what it printed."""


class UnfitError(RuntimeError):
    """The zygote has initialised an accelerator while it got ready: no fork of it can use that."""


class Zygote:
    """A fresh interpreter that prepares `template` and then forks a child for each job, one at a time.

    Without a template the first job begins at once, in an interpreter that has imported nothing. A zygote that fails
    is `dead` from then on.

    Raises:
        ZygoteError: it could not be started, or had not got ready after `start_timeout` seconds.
        NotImplementedError: this is not Linux, or a Linux before 5.3.
    """

    def __init__(self, template: Template | None = None, *, start_timeout: float | None = 600.0) -> None:
        if not hasattr(os, "pidfd_open"):
            raise NotImplementedError(f"clean processes need Linux (pidfd_open), and this is {sys.platform}")
        self._stack = contextlib.ExitStack()
        self._owner = os.getpid()
        self._buffer = bytearray()
        self.dead = True
        try:
            self._start(template, start_timeout)
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
            self._process = subprocess.Popen(
                # With the options of this interpreter (-O, -W, -X, …), as multiprocessing does it.
                [sys.executable, *subprocess._args_from_interpreter_flags(), "-c", BOOTSTRAP],  # type: ignore[attr-defined]
                stdin=subprocess.PIPE,
                stdout=self._logs[0],
                stderr=self._logs[1],
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
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
            remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready = select.select([self.control, self._exited], [], [], remaining)[0]
            messages = self.told() if self.control in ready else []
            if not ready or (not messages and self._exited in ready):
                break
        if messages != [("ready",)]:
            raise ZygoteError(self._why_not_ready(messages, timeout))

    def _why_not_ready(self, messages: list[tuple[Any, ...]], timeout: float | None) -> str:
        if messages:
            how = f"could not get ready:\n{messages[0][1]}"
        elif select.select([self._exited], [], [], 0)[0]:
            how = f"{describe_status(self.status())} before it was ready"
        else:
            os.kill(self._process.pid, signal.SIGABRT)  # for its stacks
            select.select([self._exited], [], [], _GRACE)
            how = f"was not ready after {timeout:g} s"
        texts = [("stdout", _text(self._logs[0])), ("stderr", _text(self._logs[1]))]
        printed = "".join(f"\n--- its {name} ---\n{text}" for name, text in texts if text)
        return f"the process that was to run it {how}{printed}"

    @property
    def control(self) -> int:
        return self._control.fileno()

    @property
    def exit_descriptor(self) -> int:
        """Readable once the zygote is gone."""
        return self._exited

    def is_alive(self) -> bool:
        return not self.dead and not select.select([self._exited], [], [], 0)[0]

    def status(self) -> int:
        """How the zygote, which is gone, has ended. It is not reaped by this: see `close`."""
        result = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        assert result is not None
        return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status

    def run(
        self, job: Job, receive: Callable[[tuple[Any, ...]], None], *, timeout: float | None, capture: bool = True
    ) -> Ending:
        """Do `job` in a child; `receive` gets each message as it comes.

        After `timeout` seconds the child is asked for its stacks (SIGABRT, which faulthandler answers on its standard
        error) and then killed. Whatever happens here, a KeyboardInterrupt included, the child and all that it has
        started is killed before this returns.

        Raises:
            UnfitError: the child cannot use the accelerator. Nothing of the job has been done.
            Exception: what pickling the job raises.
        """
        payload = pickle.dumps((_changes(self._environment, dict(os.environ)), job))
        started = time.monotonic()
        with contextlib.ExitStack() as stack:
            outputs = [stack.enter_context(tempfile.TemporaryFile()) for _ in "12"] if capture else []
            read_end, write_end = os.pipe()
            stack.callback(os.close, read_end)
            os.set_blocking(read_end, False)
            try:
                descriptors = [write_end, *([file.fileno() for file in outputs] or (1, 2))]
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it is dead, as will be seen
                    socket.send_fds(self._control, [HEADER.pack(JOB, len(payload))], descriptors)
                    self._control.sendall(payload)
            finally:
                os.close(write_end)
            listener = _Listener(self, read_end, receive)
            try:
                listener.listen(None if timeout is None else started + timeout)
            except BaseException:
                self.close()
                raise
            returncode, peak = listener.exited or (-signal.SIGKILL, 0)
            if listener.lost:
                self.close()
            return Ending(
                returncode=returncode,
                timed_out=listener.timed_out,
                done=listener.done,
                duration=time.monotonic() - started,
                peak_bytes=peak,
                stdout=_text(outputs[0]) if capture else "",
                stderr=_text(outputs[1]) if capture else "",
                lost=listener.lost,
            )

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
            if not select.select([self._exited], [], [], _SECONDS_TO_OBEY)[0]:
                self._process.kill()
                select.select([self._exited], [], [])
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


class _Listener:
    """Hears one child out: its messages, its end as the zygote tells it, or that of the zygote."""

    def __init__(self, zygote: Zygote, messages: int, receive: Callable[[tuple[Any, ...]], None]) -> None:
        self._zygote = zygote
        self._messages = messages
        self._receive = receive
        self._buffer = bytearray()
        self.exited: tuple[int, int] | None = None
        self.done = self.timed_out = False
        self.lost = ""

    def listen(self, deadline: float | None) -> None:
        steps = iter([(ABORT, _GRACE), (KILL, _SECONDS_TO_OBEY)])
        with selectors.DefaultSelector() as selector:
            for descriptor in (self._messages, self._zygote.control, self._zygote.exit_descriptor):
                selector.register(descriptor, selectors.EVENT_READ)
            while self.exited is None and not self.lost:
                remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
                ready = {key.fd for key, _ in selector.select(remaining)}
                if self._messages in ready and not self._read():
                    selector.unregister(self._messages)  # all ends are closed: the exit is a moment away
                if self._zygote.control in ready:
                    self._hear()
                if self._zygote.exit_descriptor in ready and self.exited is None:
                    self.lost = f"the process that watched it {describe_status(self._zygote.status())}"
                # A child that never stops talking leaves nothing to wait for.
                if deadline is not None and time.monotonic() >= deadline and self.exited is None and not self.lost:
                    self.timed_out = True
                    request, seconds = next(steps, (None, 0.0))
                    deadline = time.monotonic() + seconds
                    if request is None:
                        self.lost = "the process that watched it did not answer"
                    else:
                        self._zygote.ask(request)
        while self._read():  # what came before the end
            pass

    def _hear(self) -> None:
        for kind, *rest in self._zygote.told():
            if kind == "exited":
                self.exited = (rest[0], rest[1])

    def _read(self) -> bool:
        """Read what there is of the child's messages. False when nothing is left, or for now nothing is there."""
        try:
            data = os.read(self._messages, 1 << 20)
        except BlockingIOError:
            return False
        self._buffer += data
        for message in map(_unpickled, unframed(self._buffer)):
            if message == ("done",):
                self.done = True
            elif message == ("unfit",):
                raise UnfitError("an accelerator was initialised before the fork")
            else:
                self._receive(message)
        return bool(data)


def _changes(before: dict[str, str], now: dict[str, str]) -> dict[str, str | None]:
    """What has happened to the environment; None is for what is gone."""
    changes: dict[str, str | None] = {name: value for name, value in now.items() if before.get(name) != value}
    changes.update(dict.fromkeys(before.keys() - now.keys()))
    return changes


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


def _unpickled(data: bytes) -> tuple[Any, ...]:
    try:
        message: tuple[Any, ...] = pickle.loads(data)
    except Exception as error:  # noqa: BLE001 - what the code under test wrote into the pipe is its own fault
        return ("broken", f"a message from the child could not be read: {type(error).__name__}: {error}")
    return message


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
