"""How a clean process ended."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from pytest_tensorizer.process.limits import format_size


@dataclass(frozen=True)
class Ending:
    """How a child ended. `stdout` and `stderr` hold what it printed, or nothing where they were inherited.

    `lost` says why there is no child, or nobody to tell how it ended, where that is so.
    """

    returncode: int
    timed_out: bool
    done: bool
    duration: float
    peak_bytes: int
    stdout: str
    stderr: str
    lost: str = ""

    @property
    def clean(self) -> bool:
        return self.done and self.returncode == 0 and not self.timed_out and not self.lost

    def describe(self) -> str:
        """One line: "died of SIGSEGV after 0.41 s (peak 812 MiB)"."""
        if self.lost:
            how = f"is lost, because {self.lost},"
        elif self.timed_out:
            how = "did not end in time and was killed"
        else:
            how = describe_status(self.returncode)
            if self.returncode >= 0 and not self.done:
                how += " before it had said that it was done"
        peak = f" (peak {format_size(self.peak_bytes)})" if self.peak_bytes else ""
        return f"{how} after {self.duration:.2f} s{peak}"


def describe_status(returncode: int) -> str:
    """ "died of SIGKILL", "ended with exit status 1" """
    return f"died of {signal_name(-returncode)}" if returncode < 0 else f"ended with exit status {returncode}"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
