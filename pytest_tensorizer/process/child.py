"""What runs inside a clean process: it takes one job, does it, and sends back what happened.

The job arrives pickled on standard input, and messages leave pickled through a pipe of their own, so that
whatever the code under test prints, closes or breaks, the two do not get mixed up.

The interpreter that the parent starts forks once, before it has read the job, and then only watches the fork. So
the peak of memory is that of the job (what is executed starts with the peak of who executed it), and when the
parent is gone, even by SIGKILL, there is somebody left to end the job and all that it started.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import pickle
import select
import signal
import struct
import sys
import traceback
from collections.abc import Mapping
from typing import Any, Protocol

BOOTSTRAP = """\
import pickle, sys
path, fd, parent = pickle.load(sys.stdin.buffer)
sys.path[:] = path
from pytest_tensorizer.process.child import main
main(fd, parent)
"""


class Job(Protocol):
    """What a clean process does. Pickled by the parent; `run` is called in the child."""

    @property
    def memory_limit(self) -> int | None:
        """In bytes."""

    @property
    def variables(self) -> Mapping[str, str]:
        """Put into the environment before anything else happens."""

    def run(self, channel: Channel) -> None:
        """Do it, and send messages: tuples whose first element says what they are."""


class Channel:
    """The child's end of the pipe."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._pid = os.getpid()

    def send(self, *message: Any) -> None:
        if os.getpid() != self._pid:
            return  # a fork of the test which came back out of it: it has no say in how the test went
        data = pickle.dumps(message)
        data = struct.pack("<Q", len(data)) + data
        while data:
            data = data[os.write(self._fd, data) :]


def main(fd: int, parent: int) -> None:
    """Run the job on standard input. Everything that keeps the parent from hearing of a failure is set up first."""
    os.set_inheritable(fd, False)
    worker = os.fork()
    if worker:
        _watch(worker, parent, fd)
    # A copy of standard error: the code under test may close or replace its own.
    faulthandler.enable(file=os.dup(2), all_threads=True)
    channel = Channel(fd)
    # Most of the time of a fresh interpreter goes into imports, and a quarter of that into collecting garbage
    # which is none: modules stay.
    gc.disable()
    try:
        job: Job = pickle.load(sys.stdin.buffer)
    except BaseException:
        channel.send("broken", "the job could not be read in the child:\n" + traceback.format_exc())
        raise
    with open(os.devnull) as null:
        os.dup2(null.fileno(), 0)
    os.environ.update(job.variables)
    if job.memory_limit is not None:
        from pytest_tensorizer.process.limits import limit_memory

        limit_memory(job.memory_limit)
    job.run(channel)
    channel.send("done")


def imports_are_over() -> None:
    """Turn the garbage collector on. (Not `gc.freeze()`: what is frozen is hidden from `gc.get_referrers`.)"""
    gc.enable()


def _watch(worker: int, parent: int, fd: int) -> None:
    """Tell through `fd` how `worker` ended, and exit. End the process group if `parent` is gone first."""
    # The parent's request for stacks: it knows only this process.
    signal.signal(signal.SIGABRT, lambda *_: os.kill(worker, signal.SIGABRT))
    try:
        os.close(0)  # a parent that writes a job to a dead worker should see the pipe break
        try:
            watched = [os.pidfd_open(worker), os.pidfd_open(parent)]
        except ProcessLookupError:  # of the parent: an ended worker stays until it is waited for
            os.killpg(0, signal.SIGKILL)
        if watched[0] not in select.select(watched, [], [])[0]:
            os.killpg(0, signal.SIGKILL)
        _, status, usage = os.wait4(worker, 0)
        Channel(fd).send("exited", os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024)
    finally:
        os._exit(1)  # whatever it is: a watcher whose word is missing is no clean ending
