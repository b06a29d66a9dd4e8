"""The process that tries examples, and is replaced where one of them ends it."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import pickle
import select
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, NoReturn

from pytest_tensorizer.fuzz.outcome import Outcome, of_ending, of_exception
from pytest_tensorizer.process.ending import describe_status
from pytest_tensorizer.process.limits import MemoryLimit
from pytest_tensorizer.process.stacks import shorten

Rule = Callable[[Any, Path], str]
"""Takes an example, and an empty directory. Returns why the subject has refused it, or ""; raises if it is broken."""

_EXAMPLES = 2000
"""After so many a process is replaced: what leaks would else be taken for the last example's."""
_SECONDS_TO_DUMP = 5.0
_PR_SET_PDEATHSIG = 1
_M_PERTURB, _FILL = -6, 0xA5


class Worker:
    """Tries examples one at a time, in a fork of this process.

    The one that it was trying when its process ended is to blame, so many can share a process. This one must not have
    threads, and does not call the rule itself. On Linux only.

    Args:
        rule: what has to hold.
        directory: a place for files, which exists. What one example leaves there the next does not see.
        timeout: the seconds that one example may take.
        memory_limit: the bytes that the process may allocate.
        sends: makes of an example what the rule is given, which can be pickled: the less, the faster.
    """

    def __init__(
        self,
        rule: Rule,
        *,
        directory: Path,
        timeout: float = 10.0,
        memory_limit: int = 1 << 30,
        sends: Callable[[Any], Any] = lambda example: example,
    ) -> None:
        self._rule = rule
        self._directory = directory
        self._timeout = timeout
        self._memory_limit = memory_limit
        self._sends = sends
        self._process: _Process | None = None

    def run(self, example: Any) -> Outcome:
        """Try one example."""
        if self._process is not None and self._process.tried >= _EXAMPLES:
            self.close()
        company = 0 if self._process is None else self._process.tried
        sent = pickle.dumps(self._sends(example), pickle.HIGHEST_PROTOCOL)
        outcome = self._try(sent)
        if self._process is not None or not company:
            return outcome
        again = self._try(sent)
        if again.ended_the_process or outcome.ran_out_of_memory:  # it is theirs that was used up
            return again
        # An earlier one may have left memory damaged, or a thread running.
        alone = f", but not when it is tried alone: one of the {company} before it may be to blame"
        return replace(outcome, faults={f"{fault}, not alone": told + alone for fault, told in outcome.faults.items()})

    def _try(self, sent: bytes) -> Outcome:
        """The process is given up where it has ended, or is no longer good for another example."""
        if self._process is None:
            self._process = _Process(self._rule, self._directory, self._memory_limit)
        outcome, is_spent = self._process.run(sent, self._timeout)
        if is_spent:
            self.close()
        return outcome

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.close()
            self._process = None


class _Process:
    """One forked process."""

    def __init__(self, rule: Rule, directory: Path, memory_limit: int) -> None:
        self.tried = 0
        self._status: int | None = None
        self._printed = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 - as long as the process
        self._messages, theirs = Pipe()
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            self._messages.close()
            _serve(theirs, rule, directory / "example", self._printed.fileno(), memory_limit, parent)
        theirs.close()
        self._handle = os.pidfd_open(self._pid)
        # Both: grandchildren that the subject has left may keep the pipe open.
        self._waiting = select.poll()
        self._waiting.register(self._messages, select.POLLIN)
        self._waiting.register(self._handle, select.POLLIN)

    def run(self, sent: bytes, timeout: float) -> tuple[Outcome, bool]:
        """What becomes of an example, and whether that was the last one of this process."""
        self.tried += 1
        with contextlib.suppress(BrokenPipeError):  # it has ended; why is told below
            self._messages.send_bytes(sent)
        if not self._waiting.poll(timeout * 1000):
            return self._hung(), True
        try:
            if self._messages.poll():
                answer: tuple[Outcome, bool] = pickle.loads(self._messages.recv_bytes())
                return answer
        except (EOFError, ConnectionResetError):
            pass
        how = describe_status(self._ended())
        return of_ending(how, self._output(), outermost=False), True

    def _hung(self) -> Outcome:
        """What it was at: it is asked for its stacks, and killed if it cannot answer."""
        signal.pidfd_send_signal(self._handle, signal.SIGABRT)
        dumped = select.poll()
        dumped.register(self._handle, select.POLLIN)
        dumped.poll(_SECONDS_TO_DUMP * 1000)
        self._kill()
        return of_ending("hung", self._output(), outermost=True)

    def _output(self) -> str:
        self._printed.seek(0)
        return shorten(self._printed.read().decode(errors="replace"))

    def close(self) -> None:
        self._kill()
        self._messages.close()
        self._printed.close()
        os.close(self._handle)

    def _kill(self) -> None:
        if self._status is None:
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            self._ended()

    def _ended(self) -> int:
        """Wait for its end. By then its number may be that of another process."""
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self._status


def _serve(messages: Connection, rule: Rule, directory: Path, printed: int, memory_limit: int, parent: int) -> NoReturn:
    """In the forked process: try what comes, until the parent closes the pipe."""
    code = 1
    try:
        _prepare(printed, parent)
        limit = MemoryLimit(memory_limit)
        limit.__enter__()
        while True:
            try:
                data = messages.recv_bytes()
            except EOFError:
                break
            os.ftruncate(printed, 0)
            os.lseek(printed, 0, os.SEEK_SET)
            outcome = _tried(rule, pickle.loads(data), directory)
            is_spent = outcome.ran_out_of_memory and _kept(limit) > memory_limit // 4
            messages.send_bytes(pickle.dumps((outcome, is_spent), pickle.HIGHEST_PROTOCOL))
        code = 0
    finally:
        # Not by way of the interpreter: below lie the frames of the process that was forked, with what they clean up.
        os._exit(code)


def _prepare(printed: int, parent: int) -> None:
    """What tells this process apart from the one that it was forked from."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    # Memory that nobody has written to is zero all too often, and looks right.
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_PERTURB, _FILL)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    sys.stdout = sys.stderr = open(1, "w", buffering=1, errors="replace", closefd=False)  # noqa: SIM115
    faulthandler.enable(file=2, all_threads=True)


def _tried(rule: Rule, example: Any, directory: Path) -> Outcome:
    _make_empty(directory)
    try:
        return Outcome(refused=rule(example, directory))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the subject raises is what is asked for
        return of_exception(error)


def _kept(limit: MemoryLimit) -> int:
    """The bytes that are in use after an example, without those that glibc's allocator holds for the next one."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        return limit.used()
    libc.mallinfo2.restype = _MallocInfo
    return limit.used() - int(libc.mallinfo2().fordblks)


class _MallocInfo(ctypes.Structure):
    """What mallinfo2(3) returns. `fordblks` are the bytes that are free."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"
        )
    )  # fmt: skip


def _make_empty(directory: Path) -> None:
    """To remove the directory and make it again takes more time than many a rule."""
    directory.mkdir(exist_ok=True)
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry)
            else:
                os.unlink(entry)
