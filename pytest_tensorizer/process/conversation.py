"""Having one job done by a child, and hearing it out: the parent's side of every clean process."""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import IO, Any, Protocol

from pytest_tensorizer.process.ending import Ending
from pytest_tensorizer.process.transport import ABORT, KILL, unframed

GRACE = 2.0
"""Seconds between the signal that asks for every thread's stack and the one that kills."""
SECONDS_TO_OBEY = 10.0
"""Seconds for what takes a zygote milliseconds: then it has itself to be killed."""


class ZygoteError(RuntimeError):
    """The process that was to do the job could not be started. The message has what it printed."""


class UnfitError(ZygoteError):
    """The zygote has initialised an accelerator while it got ready: no fork of it can use that."""


class Watcher(Protocol):
    """Who starts a child and tells how it ended: a zygote, or a thread of this process."""

    @property
    def control(self) -> int:
        """The descriptor that is readable when the watcher has something to tell."""

    @property
    def exit_descriptor(self) -> int | None:
        """The descriptor that is readable once the watcher itself is gone, if it can go."""

    def begin(self, payload: bytes, descriptors: list[int]) -> None:
        """Start a child for the job in `payload`. The descriptors are for its messages, output and errors."""

    def told(self) -> list[tuple[Any, ...]]:
        """What the watcher has said by now; waits for something if there is nothing yet."""

    def ask(self, kind: bytes) -> None:
        """ABORT or KILL the child."""

    def gone(self) -> str:
        """What has become of a watcher whose exit descriptor is readable."""

    def close(self) -> None:
        """End the child, and all that it has started."""


def converse(
    watcher: Watcher,
    payload: bytes,
    receive: Callable[[tuple[Any, ...]], None],
    *,
    timeout: float | None,
    capture: bool,
) -> Ending:
    """Have the job in `payload` done; `receive` gets each message as it comes.

    After `timeout` seconds the child is asked for its stacks (SIGABRT, which faulthandler answers on its standard
    error) and then killed. Whatever happens here, a KeyboardInterrupt included, the child and all that it has
    started is killed before this returns.

    Raises:
        UnfitError: the child cannot use the accelerator. Nothing of the job has been done.
        ZygoteError: there is no room for its output, or no process to be had.
    """
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        try:
            outputs = [stack.enter_context(tempfile.TemporaryFile()) for _ in "12"] if capture else []
            read_end, write_end = os.pipe()
            stack.callback(os.close, read_end)
            os.set_blocking(read_end, False)
            try:
                watcher.begin(payload, [write_end, *([file.fileno() for file in outputs] or (1, 2))])
            finally:
                os.close(write_end)
        except OSError as error:
            raise ZygoteError(f"no clean process could be started: {error}") from error
        listener = _Listener(watcher, read_end, receive)
        try:
            listener.listen(None if timeout is None else started + timeout)
        except BaseException:
            watcher.close()
            raise
        if listener.lost:
            watcher.close()
        returncode, peak = listener.exited or (-signal.SIGKILL, 0)
        return Ending(
            returncode=returncode,
            timed_out=listener.timed_out,
            done=listener.done,
            duration=time.monotonic() - started,
            peak_bytes=peak,
            stdout=text_of(outputs[0]) if capture else "",
            stderr=text_of(outputs[1]) if capture else "",
            lost=listener.lost,
        )


def start_interpreter(bootstrap: str, outputs: Sequence[int | IO[bytes]], descriptor: int) -> subprocess.Popen[bytes]:
    """An interpreter in a session of its own that runs `bootstrap`, reads from a pipe and inherits `descriptor`."""
    return subprocess.Popen(
        # With the options of this interpreter (-O, -W, -X, …), as multiprocessing does it.
        [sys.executable, *subprocess._args_from_interpreter_flags(), "-c", bootstrap],  # type: ignore[attr-defined]
        stdin=subprocess.PIPE,
        stdout=outputs[0],
        stderr=outputs[1],
        pass_fds=[descriptor],
        start_new_session=True,
    )


class _Listener:
    """Hears one child out: its messages, its end as the watcher tells it, or that of its watcher."""

    def __init__(self, watcher: Watcher, messages: int, receive: Callable[[tuple[Any, ...]], None]) -> None:
        self._watcher = watcher
        self._messages = messages
        self._receive = receive
        self._buffer = bytearray()
        self.exited: tuple[int, int] | None = None
        self.done = self.timed_out = False
        self.lost = ""

    def listen(self, deadline: float | None) -> None:
        steps = iter([(ABORT, GRACE), (KILL, SECONDS_TO_OBEY)])
        with selectors.DefaultSelector() as selector:
            for descriptor in (self._messages, self._watcher.control, self._watcher.exit_descriptor):
                if descriptor is not None:
                    selector.register(descriptor, selectors.EVENT_READ)
            while self.exited is None and not self.lost:
                remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
                ready = {key.fd for key, _ in selector.select(remaining)}
                if self._messages in ready and not self._read():
                    selector.unregister(self._messages)  # all ends are closed: the exit is a moment away
                if self._watcher.control in ready:
                    self._hear()
                if self._watcher.exit_descriptor in ready and self.exited is None:
                    self.lost = self._watcher.gone()
                # A child that never stops talking leaves nothing to wait for.
                if deadline is not None and time.monotonic() >= deadline and self.exited is None and not self.lost:
                    self.timed_out = True
                    request, seconds = next(steps, (None, 0.0))
                    deadline = time.monotonic() + seconds
                    if request is None:
                        self.lost = "the process that watched it did not answer"
                    else:
                        self._watcher.ask(request)
        while self._read():  # what came before the end
            pass

    def _hear(self) -> None:
        for kind, *rest in self._watcher.told():
            if kind == "exited":
                self.exited = (rest[0], rest[1])
            elif kind == "not forked":
                self.lost = f"it could not be forked: {rest[0]}"

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


def _unpickled(data: bytes) -> tuple[Any, ...]:
    try:
        message: tuple[Any, ...] = pickle.loads(data)
    except Exception as error:  # noqa: BLE001 - what the code under test wrote into the pipe is its own fault
        return ("broken", f"a message from the child could not be read: {type(error).__name__}: {error}")
    return message


def text_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
