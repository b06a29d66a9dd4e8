"""Starting a fresh interpreter for one job, hearing it out, and ending it and all that it started."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import selectors
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from pytest_tensorizer.process.child import BOOTSTRAP, Job
from pytest_tensorizer.process.limits import format_size

_GRACE = 2.0  # seconds between the signal that asks for every thread's stack and the one that kills


@dataclass(frozen=True)
class Ending:
    """How a child ended. `stdout` and `stderr` hold what it printed, or nothing where they were inherited."""

    returncode: int
    timed_out: bool
    done: bool
    duration: float
    peak_bytes: int
    stdout: str
    stderr: str

    @property
    def clean(self) -> bool:
        return self.done and self.returncode == 0 and not self.timed_out

    def describe(self) -> str:
        """One line: "died of SIGSEGV after 0.41 s (peak 812 MiB)"."""
        if self.timed_out:
            how = "did not end in time and was killed"
        elif self.returncode < 0:
            how = f"died of {_signal_name(-self.returncode)}"
        else:
            how = f"ended with exit status {self.returncode}"
            if not self.done:
                how += " before it had said that it was done"
        peak = f" (peak {format_size(self.peak_bytes)})" if self.peak_bytes else ""
        return f"{how} after {self.duration:.2f} s{peak}"


def run_child(
    job: Job, receive: Callable[[tuple[Any, ...]], None], *, timeout: float | None, capture: bool = True
) -> Ending:
    """Run `job` in a fresh interpreter; `receive` gets each message as it comes.

    After `timeout` seconds the child is asked for its stacks (SIGABRT, which faulthandler answers on its standard
    error) and then killed. Whatever happens here, a KeyboardInterrupt included, the child and every process of its
    group is killed before this returns.

    Raises:
        NotImplementedError: this is not Linux, or a Linux before 5.3.
        Exception: what pickling the job raises.
    """
    if not hasattr(os, "pidfd_open"):
        raise NotImplementedError(f"clean processes need Linux (pidfd_open), and this is {sys.platform}")
    payload = pickle.dumps(job)
    with contextlib.ExitStack() as stack:
        read_end, write_end = os.pipe()
        stack.callback(os.close, read_end)
        stdout, stderr = (stack.enter_context(tempfile.TemporaryFile()) if capture else None for _ in range(2))
        started = time.monotonic()
        deadline = None if timeout is None else started + timeout
        try:
            process = subprocess.Popen(
                # With the options of this interpreter (-O, -W, -X, …), as multiprocessing does it.
                [sys.executable, *subprocess._args_from_interpreter_flags(), "-c", BOOTSTRAP],  # type: ignore[attr-defined]
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                pass_fds=[write_end],
                start_new_session=True,
            )
        finally:
            os.close(write_end)
        done = timed_out = False
        exited: tuple[int, int] | None = None
        try:
            exit_fd = os.pidfd_open(process.pid)
            stack.callback(os.close, exit_fd)
            assert process.stdin is not None
            # A child that dies at once breaks the pipe; its ending tells why.
            with contextlib.suppress(BrokenPipeError), process.stdin:
                process.stdin.write(pickle.dumps((sys.path, write_end, os.getpid())) + payload)
            buffer = bytearray()
            # Interpreter shutdown runs the destructors of C++ libraries: it belongs to the job, so "done" is not
            # the last word.
            for message in _messages(read_end, exit_fd, buffer, deadline):
                if message == ("done",):
                    done = True
                elif message[0] == "exited":
                    exited = message[1:]
                    break
                else:
                    receive(message)
            if exited is None and not select.select([exit_fd], [], [], 0)[0]:
                timed_out = True
                os.kill(process.pid, signal.SIGABRT)
                for message in _messages(read_end, exit_fd, buffer, time.monotonic() + _GRACE):
                    if message[0] == "exited":
                        exited = message[1:]
                        break
        finally:
            # Killed before it is reaped: until then the number of its group can belong to nobody else.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        returncode, peak = exited or (process.returncode, 0)
        return Ending(
            returncode=returncode,
            timed_out=timed_out,
            done=done,
            duration=time.monotonic() - started,
            peak_bytes=peak,
            stdout=_text(stdout),
            stderr=_text(stderr),
        )


def _messages(fd: int, exit_fd: int, buffer: bytearray, deadline: float | None) -> Iterator[tuple[Any, ...]]:
    """The messages from `fd`, until the process has exited or the deadline has passed.

    A grandchild may hold the pipe open, so its end alone does not tell that the child is gone; and a child may
    never stop talking. `buffer` keeps what has come of the next message.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        selector.register(exit_fd, selectors.EVENT_READ)
        while True:
            remaining = None if deadline is None else deadline - time.monotonic()
            ready = {key.fd for key, _ in selector.select(remaining)}
            if fd not in ready or (remaining is not None and remaining < 0 and exit_fd not in ready):
                return
            data = os.read(fd, 1 << 20)
            if not data:
                selector.unregister(fd)  # both ends of the child have let go of it: the exit is a moment away
            buffer += data
            while len(buffer) >= 8 and len(buffer) >= (end := 8 + struct.unpack_from("<Q", buffer)[0]):
                message = _unpickled(bytes(buffer[8:end]))
                del buffer[:end]
                yield message


def _unpickled(data: bytes) -> tuple[Any, ...]:
    try:
        message: tuple[Any, ...] = pickle.loads(data)
    except Exception as error:  # noqa: BLE001 - what the code under test wrote into the pipe is its own fault
        return ("broken", f"a message from the child could not be read: {type(error).__name__}: {error}")
    return message


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _text(file: IO[bytes] | None) -> str:
    if file is None:
        return ""
    file.seek(0)
    return file.read().decode(errors="replace")
