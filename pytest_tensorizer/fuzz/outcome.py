"""What becomes of one example."""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from pytest_tensorizer.process.limits import is_out_of_memory

_PACKAGE = str(Path(__file__).parents[1])
OUT_OF_MEMORY = "ran out of memory"
_FRAME = re.compile(r'^  File "(.*)", line \d+ in (.*)$', re.MULTILINE)


class Violation(AssertionError):
    """A rule does not hold.

    Attributes:
        faults: what is wrong, in words that are the same for examples that are alike -> what to tell people.
    """

    def __init__(self, faults: Mapping[str, str]) -> None:
        super().__init__("; ".join(faults.values()))
        self.faults = dict(faults)

    def __reduce__(self) -> tuple[type[Violation], tuple[dict[str, str]]]:
        return type(self), (self.faults,)


@dataclass(frozen=True)
class Outcome:
    """What became of one example.

    Attributes:
        faults: what is wrong, in words that stay the same while the example gets smaller ("wrong bits", "raised
            KeyError in reader.py:load", "died of SIGSEGV in reader.py:load", "hung in …", "ran out of memory"), -> what
            to tell people: what differs, or what was raised. Nothing, if the rule holds.
        refused: why the subject did not take the example, where it may do so.
        output: what was printed, and the stacks of a process that crashed or hung.
    """

    faults: Mapping[str, str] = field(default_factory=dict)
    refused: str = ""
    output: str = ""

    @property
    def ended_the_process(self) -> bool:
        """Whether it takes a clean process to see this again."""
        return any(fault.startswith((OUT_OF_MEMORY, "died", "hung", "ended")) for fault in self.faults)

    @property
    def ran_out_of_memory(self) -> bool:
        return OUT_OF_MEMORY in self.faults


def of_exception(error: BaseException) -> Outcome:
    """That of a rule that has raised `error`."""
    if isinstance(error, Violation):
        return Outcome(error.faults)
    name = type(error).__name__
    message = f"{name}: {error}"
    if is_out_of_memory(error):
        return Outcome({OUT_OF_MEMORY: message})
    return Outcome({f"raised {name}{_raised_in(error.__traceback__)}": message})


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
    return Outcome({how + where: f"the process {how}{where}"}, output=output)


def _raised_in(trace: TracebackType | None) -> str:
    """The innermost function that is no part of this package."""
    frames = [frame for frame in traceback.extract_tb(trace) if not _is_ours(frame.filename)]
    return f" in {Path(frames[-1].filename).name}:{frames[-1].name}" if frames else ""


def _is_ours(file: str) -> bool:
    return file.startswith(_PACKAGE)
