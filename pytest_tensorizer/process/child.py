"""What runs inside a clean process: it takes one job, does it, and sends back what happened.

The job arrives pickled on standard input, and messages leave pickled through a pipe of their own, so that
whatever the code under test prints, closes or breaks, the two do not get mixed up.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import pickle
import signal
import struct
import sys
import traceback
from typing import Any, Protocol

BOOTSTRAP = """\
import pickle, sys
path, fd = pickle.load(sys.stdin.buffer)
sys.path[:] = path
from pytest_tensorizer.process.child import main
main(fd)
"""


class Job(Protocol):
    """What a clean process does. Pickled by the parent; `run` is called in the child."""

    memory_limit: int | None
    variables: dict[str, str]

    def run(self, channel: Channel) -> None:
        """Do it, and send messages: tuples whose first element says what they are."""


class Channel:
    """The child's end of the pipe."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def send(self, *message: Any) -> None:
        data = pickle.dumps(message)
        data = struct.pack("<Q", len(data)) + data
        while data:
            data = data[os.write(self._fd, data) :]


def main(fd: int) -> None:
    """Run the job on standard input. Everything that keeps the parent from hearing of a failure is set up first."""
    os.set_inheritable(fd, False)
    faulthandler.enable(all_threads=True)
    _die_with_parent()
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
    """Turn the garbage collector on, without the objects that are there to stay."""
    gc.freeze()
    gc.enable()


def _die_with_parent() -> None:
    """On Linux: be killed when the parent is, even by SIGKILL, so that nothing is left running."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
