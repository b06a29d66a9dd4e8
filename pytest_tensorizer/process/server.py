"""What runs inside a zygote: a fresh interpreter that gets something ready, and then forks a child for each job.

It is executed and not forked, so it inherits no accelerator, no thread and no lock. It does nothing but wait for
jobs and watch the one child that runs: when the parent is gone, even by SIGKILL, there is still somebody to end the
child and all that it has started.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib.util
import os
import pickle
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pytest_tensorizer.process import child
from pytest_tensorizer.process.threads import OneThread
from pytest_tensorizer.process.transport import ABORT, HEADER, JOB, Channel, wait

BOOTSTRAP = """\
import pickle, sys
path, fd, parent = pickle.load(sys.stdin.buffer)
sys.path[:] = path
from pytest_tensorizer.process.server import main
main(fd, parent)
"""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_SECONDS_TO_END = 10


class Template(Protocol):
    """What a zygote gets ready. Pickled by the parent."""

    def prepare(self, serve: Callable[[Any], None]) -> str:
        """Get ready and call `serve(prepared)`, which returns when no more jobs come.

        Returns why `serve` was not called, where it was not.
        """


class _Request(NamedTuple):
    kind: bytes
    payload: bytes
    descriptors: list[int]


def preload(names: Iterable[str]) -> None:
    """Import what the jobs will want. What is not installed will be missed by whoever needs it."""
    for name in names:
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)


def main(fd: int, parent: int) -> None:
    """Serve the parent at the other end of the socket `fd`, with the template that standard input has."""
    faulthandler.enable()
    gc.disable()  # until the imports are over: see `imports_are_over`
    template: Template | None = pickle.load(sys.stdin.buffer)
    with open(os.devnull) as null:
        os.dup2(null.fileno(), 0)
    server = _Server(socket.socket(fileno=fd), parent, None if template is None else OneThread())
    if template is None:
        server.serve(None)
        return
    try:
        reason = template.prepare(server.serve)
    except BaseException:
        server.say_why(traceback.format_exc())
        raise
    server.say_why(reason)


class _Server:
    """`threads` is that of a zygote, and None of a fresh interpreter, whose only child runs in `serve`'s caller."""

    def __init__(self, control: socket.socket, parent: int, threads: OneThread | None) -> None:
        os.set_inheritable(control.fileno(), False)
        self._control = control
        self._channel = Channel(control.send)
        self._threads = threads
        self._has_served = False
        self._pid = os.getpid()
        try:
            self._parent = os.pidfd_open(parent)
        except ProcessLookupError:
            os._exit(1)
        # What a child leaves behind, in whatever session, becomes a child of this process, and can be found.
        self._prctl = ctypes.CDLL(None).prctl
        self._prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def say_why(self, reason: str) -> None:
        """Tell the parent why this zygote has served nobody."""
        if not self._has_served:
            self._channel.send("failed", reason)

    def serve(self, prepared: Any) -> None:
        """Fork a child for each job, until the parent wants no more, and then come back.

        In the child it does not come back, but for that of a fresh interpreter, which ends as an interpreter does.
        """
        self._has_served = True
        if self._threads is not None:
            # Now, and all of it: what is old already, no child will go through again.
            gc.collect()
            gc.enable()
        self._own_children = _children()
        self._logs = _descriptors_like(1), _descriptors_like(2)
        self._channel.send("ready")
        while (request := self._next()) is not None:
            if request.kind != JOB:
                continue  # meant for a child that had ended
            child.flush()
            try:
                with warnings.catch_warnings():
                    # That of a fork with threads. Those of this process are of the code that it got ready.
                    warnings.simplefilter("ignore", DeprecationWarning)
                    pid = os.fork()
            except OSError as error:
                self._channel.send("not forked", str(error))
                pid = -1
            if pid == 0:
                messages = self._become_child(request.descriptors)
                if self._threads is None:
                    return child.run_job(request.payload, messages, None, forked=False)
                child.run_job_and_exit(request.payload, messages, prepared)
            for descriptor in request.descriptors:
                os.close(descriptor)
            del request
            if pid > 0:
                self._watch(pid)
        signal.alarm(_SECONDS_TO_END)  # what was got ready may end in its own way, but not for ever

    def _next(self) -> _Request | None:
        """The next request, or None when the parent is gone or has closed its end."""
        if self._parent in wait([self._control.fileno(), self._parent]):
            return None
        return self._receive()

    def _receive(self) -> _Request | None:
        header, descriptors, _, _ = socket.recv_fds(self._control, HEADER.size, 3)
        header += self._read(HEADER.size - len(header)) if header else b""
        if len(header) < HEADER.size:
            return None
        kind, length = HEADER.unpack(header)
        payload = self._read(length)
        return _Request(kind, payload, list(descriptors)) if len(payload) == length else None

    def _read(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length and (piece := self._control.recv(min(length - len(data), 1 << 20))):
            data += piece
        return bytes(data)

    def _watch(self, pid: int) -> None:
        """Wait for the child and tell how it ended. Nothing that it has started outlives this."""
        exited = os.pidfd_open(pid)
        while exited not in (ready := wait([exited, self._parent, self._control.fileno()])):
            request = None if self._parent in ready else self._receive()
            if request is not None and request.kind == ABORT:
                os.kill(pid, signal.SIGABRT)
                continue
            os.kill(pid, signal.SIGKILL)
            wait([exited])
        # Before it is reaped: until then the number of its group can belong to nobody else.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        os.close(exited)
        while left := _children() - self._own_children:
            for orphan in left:
                os.kill(orphan, signal.SIGKILL)  # not reaped, so the number is still its own
                os.waitpid(orphan, 0)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the parent is gone: the next look shows it
            self._channel.send("exited", os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024)

    def _become_child(self, descriptors: list[int]) -> int:
        """What tells the child apart from its zygote. Returns the descriptor for messages."""
        self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != self._pid:
            os._exit(1)
        os.setpgid(0, 0)
        messages, stdout, stderr = descriptors
        os.set_inheritable(messages, False)
        for descriptor, log in zip((stdout, stderr), self._logs, strict=True):
            for number in log:  # the copies that others have made of 1 and 2 for later, and these two
                os.dup2(descriptor, number, os.get_inheritable(number))
            os.close(descriptor)
        self._control.close()
        os.close(self._parent)
        faulthandler.disable()
        if os.isatty(1):
            sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        if self._threads is not None:
            child.forget_exit_handlers()
            self._threads.release()
        return messages


def _children() -> set[int]:
    """The processes whose parent is this one, whichever of its threads has started them."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that has ended
            found.update(map(int, (task / "children").read_text().split()))
    return found


def _descriptors_like(number: int) -> list[int]:
    """`number`, and every other descriptor of this process that leads to the same file."""
    wanted = os.fstat(number)
    found = [number]
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the listing itself
            status = os.fstat(int(name))
            if int(name) != number and (status.st_dev, status.st_ino) == (wanted.st_dev, wanted.st_ino):
                found.append(int(name))
    return found
