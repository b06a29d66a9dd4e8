"""How failures are named: in words that stay the same while an example gets smaller, and tell faults apart."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

from pytest_tensorizer import fuzz
from pytest_tensorizer.fuzz.outcome import OUT_OF_MEMORY, Outcome, Violation, of_ending, of_exception

OURS = str(Path(fuzz.__file__).parent / "properties.py")


def stacks(*frames: tuple[str, str]) -> str:
    """As faulthandler prints them, the innermost first."""
    return "Current thread 0x1 (most recent call first):\n" + "".join(
        f'  File "{file}", line {number} in {function}\n' for number, (file, function) in enumerate(frames, 1)
    )


def raised(error: Exception) -> Exception:
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


def test_a_violation_keeps_its_faults() -> None:
    violation = Violation({"wrong bits": "a: 1 of 3 differ", "wrong dtype": "b: float32, not int8"})
    assert str(violation) == "a: 1 of 3 differ; b: float32, not int8"
    assert of_exception(violation) == Outcome({"wrong bits": "a: 1 of 3 differ", "wrong dtype": "b: float32, not int8"})


@pytest.mark.parametrize("again", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy], ids=["pickled", "copied"])
def test_a_violation_can_travel(again: object) -> None:
    there = again(Violation({"wrong bits": "a differs"}))  # type: ignore[operator]
    assert isinstance(there, Violation)
    assert there.faults == {"wrong bits": "a differs"}
    assert str(there) == "a differs"


def test_an_exception_is_named_by_where_the_subject_raised_it() -> None:
    def load() -> None:
        raise KeyError("weight 17")

    def other() -> None:
        raise KeyError("weight 17")

    outcomes = []
    for function in (load, other):
        with pytest.raises(KeyError) as caught:
            function()
        outcomes.append(of_exception(caught.value))
    assert [dict(outcome.faults) for outcome in outcomes] == [
        {"raised KeyError in test_outcome.py:load": "KeyError: 'weight 17'"},
        {"raised KeyError in test_outcome.py:other": "KeyError: 'weight 17'"},
    ]


def test_an_exception_that_was_raised_nowhere_has_no_place() -> None:
    assert of_exception(ValueError("x")).faults == {"raised ValueError": "ValueError: x"}


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("[enforce fail at alloc_cpu.cpp:1] . DefaultCPUAllocator: can't allocate memory")],
    ids=["python", "torch"],
)
def test_too_little_memory_is_one_fault_wherever_it_is_noticed(error: Exception) -> None:
    outcome = of_exception(raised(error))
    assert list(outcome.faults) == [OUT_OF_MEMORY]
    assert outcome.ran_out_of_memory
    assert outcome.ended_the_process


def test_a_crash_is_named_by_its_innermost_frame() -> None:
    output = stacks(("/lib/reader.py", "parse"), ("/lib/api.py", "load"), (OURS, "round_trip"), ("/x/pytest.py", "run"))
    outcome = of_ending("died of SIGSEGV", output, outermost=False)
    assert outcome.faults == {"died of SIGSEGV in reader.py:parse": "the process died of SIGSEGV in reader.py:parse"}
    assert outcome.output == output
    assert outcome.ended_the_process


def test_a_hang_is_named_by_what_was_called() -> None:
    """The innermost frame is another at each look."""
    looks = [
        stacks(("/lib/reader.py", inner), ("/lib/reader.py", "parse"), ("/lib/api.py", "load"), (OURS, "round_trip"))
        for inner in ("skip", "next")
    ]
    faults = [list(of_ending("hung", look, outermost=True).faults) for look in looks]
    assert faults == [["hung in api.py:load"], ["hung in api.py:load"]]


@pytest.mark.parametrize("output", ["", "no stack here\n", stacks((OURS, "round_trip"))], ids=["none", "text", "ours"])
def test_an_ending_without_a_frame_of_the_subject_has_no_place(output: str) -> None:
    assert list(of_ending("died of SIGKILL", output, outermost=False).faults) == ["died of SIGKILL"]


@pytest.mark.parametrize(
    ("fault", "ended"),
    [
        ("wrong bits", False),
        ("raised ValueError in x.py:load", False),
        ("died of SIGSEGV", True),
        ("hung in x.py:load", True),
        ("ended with status 3", True),
        (OUT_OF_MEMORY, True),
    ],
)
def test_which_faults_take_a_process_of_their_own(fault: str, ended: bool) -> None:
    assert Outcome({fault: ""}).ended_the_process is ended
