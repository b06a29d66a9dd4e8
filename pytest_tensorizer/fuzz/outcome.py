"""What becomes of one example."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from pytest_tensorizer.process.limits import is_out_of_memory

_PACKAGE = str(Path(__file__).parents[1])
OUT_OF_MEMORY = "ran out of memory"
_FRAME = re.compile(r'^  File "(.*)", line \d+ in (.*)$', re.MULTILINE)


class Violation(AssertionError):
    """A rule does not hold. `faults` says in what, in words that are the same for examples that are alike."""

    def __init__(self, message: str, faults: tuple[str, ...]) -> None:
        super().__init__(message)
        self.faults = faults

    def __reduce__(self) -> tuple[type[Violation], tuple[str, tuple[str, ...]]]:
        return type(self), (str(self), self.faults)


@dataclass(frozen=True)
class Outcome:
    """What became of one example.

    Attributes:
        faults: what is wrong, in words that stay the same while the example gets smaller: "wrong bits",
            "raised KeyError in reader.py:load", "died of SIGSEGV in reader.py:load", "hung in …", "ran out of memory".
            Nothing, if the rule holds.
        message: for people: what differs, or what was raised.
        refused: why the subject did not take the example, where it may do so.
        output: what was printed, and the stacks of a process that crashed or hung.
    """

    faults: tuple[str, ...] = ()
    message: str = ""
    refused: str = ""
    output: str = ""

    @property
    def ended_the_process(self) -> bool:
        """Whether it takes a clean process to see this again."""
        return any(fault.startswith((OUT_OF_MEMORY, "died", "hung", "ended")) for fault in self.faults)


def of_exception(error: BaseException) -> Outcome:
    """That of a rule that has raised `error`."""
    if isinstance(error, Violation):
        return Outcome(error.faults, str(error))
    name = type(error).__name__
    message = f"{name}: {error}"
    if is_out_of_memory(error):
        return Outcome((OUT_OF_MEMORY,), message)
    return Outcome((f"raised {name}{_raised_in(error.__traceback__)}",), message)


def of_ending(how: str, output: str, *, outermost: bool) -> Outcome:
    """That of a process that has ended as `how` tells ("died of SIGSEGV", "hung"); `output` has its stacks.

    The place is that of the innermost frame, or of the `outermost` one of the subject: where something hangs, the
    innermost one is another at each look.
    """
    frames = [(file, function) for file, function in _FRAME.findall(output)]
    mine = [number for number, (file, _) in enumerate(frames) if _is_ours(file)]
    theirs = frames[: mine[0]] if mine else frames
    place = theirs[-1 if outermost else 0] if theirs else None
    where = f" in {Path(place[0]).name}:{place[1]}" if place else ""
    return Outcome((how + where,), how + where, output=output)


def _raised_in(trace: TracebackType | None) -> str:
    """The innermost function that is no part of this package."""
    frames = [frame for frame in traceback.extract_tb(trace) if not _is_ours(frame.filename)]
    return f" in {Path(frames[-1].filename).name}:{frames[-1].name}" if frames else ""


def _is_ours(file: str) -> bool:
    return file.startswith(_PACKAGE)
