"""The process that tries examples: what is told of each way in which one can end, and what the next one sees of it."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_tensorizer.fuzz import worker as module
from pytest_tensorizer.fuzz.outcome import Outcome
from pytest_tensorizer.fuzz.worker import Rule, Worker

ROOT = Path(__file__).parents[2]
LONG = 30.0
"""Seconds within which what is waited for has come, however slow the machine is."""

Start = Callable[..., Worker]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Makes a worker, which is closed at the end."""
    workers: list[Worker] = []

    def make(rule: Rule, **options: Any) -> Worker:
        workers.append(Worker(rule, directory=tmp_path, **{"timeout": LONG, **options}))
        return workers[-1]

    yield make
    for worker in workers:
        worker.close()


def pid(example: object, directory: Path) -> str:
    """A refusal comes back as it is, so the number of the process can travel in it."""
    return str(os.getpid())


def crash() -> None:
    ctypes.string_at(0)


def forever() -> None:
    while True:
        pass


def wait_for(*descriptors: int) -> None:
    """Wait for one of them to have something to read; a pidfd has when its process has ended."""
    waiting = select.poll()
    for descriptor in descriptors:
        waiting.register(descriptor, select.POLLIN)
    assert waiting.poll(LONG * 1000), "nothing has come"


def wait_for_end(number: int) -> None:
    handle = os.pidfd_open(number)
    wait_for(handle)
    os.close(handle)


def fault(outcome: Outcome) -> str:
    (found,) = outcome.faults
    return found


# What becomes of one example


def test_a_good_example_has_no_faults(start: Start) -> None:
    outcome = start(lambda example, directory: "").run(1)
    assert outcome == Outcome()
    assert not outcome.ended_the_process
    assert not outcome.ran_out_of_memory


def test_a_refusal_comes_back(start: Start) -> None:
    assert start(lambda example, directory: f"no {example}").run("float8") == Outcome(refused="no float8")


def test_the_rule_is_never_called_in_this_process(start: Start) -> None:
    called: list[int] = []
    worker = start(lambda example, directory: called.append(example) or str(called))  # type: ignore[func-returns-value]
    assert [worker.run(1).refused, worker.run(2).refused] == ["[1]", "[1, 2]"]
    assert called == []


def test_many_examples_share_a_process(start: Start) -> None:
    worker = start(pid)
    pids = {worker.run(number).refused for number in range(50)}
    assert len(pids) == 1
    assert pids != {str(os.getpid())}


def test_a_process_is_replaced_after_so_many_examples(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_EXAMPLES", 3)
    worker = start(pid)
    pids = [worker.run(number).refused for number in range(7)]
    assert [pids.index(number) for number in pids] == [0, 0, 0, 3, 3, 3, 6]


def test_an_exception_names_its_type_and_its_place(start: Start) -> None:
    def read(name: str) -> str:
        return {"a": "b"}[name]

    worker = start(lambda example, directory: read(example))
    outcome = worker.run("missing")
    assert outcome.faults == {"raised KeyError in test_worker.py:read": "KeyError: 'missing'"}
    assert not outcome.ended_the_process
    assert worker.run("a").refused == "b"


def test_an_exception_leaves_the_process_as_it_was(start: Start) -> None:
    def rule(example: bool, directory: Path) -> str:
        if not example:
            raise ValueError(os.getpid())
        return str(os.getpid())

    worker = start(rule)
    before = worker.run(True).refused
    told = worker.run(False)
    assert told.faults == {"raised ValueError in test_worker.py:rule": f"ValueError: {before}"}
    assert worker.run(True).refused == before


def test_to_leave_by_sys_exit_is_an_exception_too(start: Start) -> None:
    def leaves(example: int, directory: Path) -> str:
        sys.exit(example)

    outcome = start(leaves).run(0)
    assert outcome.faults == {"raised SystemExit in test_worker.py:leaves": "SystemExit: 0"}
    assert not outcome.ended_the_process


def test_a_crash_names_the_signal_and_its_place(start: Start) -> None:
    def rule(example: bool, directory: Path) -> str:
        if example:
            crash()
        return "went well"

    worker = start(rule)
    outcome = worker.run(True)
    # The innermost frame: below it is no Python.
    assert outcome.faults == {"died of SIGSEGV in __init__.py:string_at": f"the process {fault(outcome)}"}
    assert outcome.ended_the_process
    assert "in crash" in outcome.output
    assert worker.run(False).refused == "went well"


def test_a_signal_that_leaves_no_stack_is_told_without_a_place(start: Start) -> None:
    def killed(example: object, directory: Path) -> str:
        os.kill(os.getpid(), signal.SIGKILL)
        return ""

    outcome = start(killed).run(1)
    assert outcome.faults == {"died of SIGKILL": "the process died of SIGKILL"}
    assert outcome.ended_the_process


def test_a_signal_of_its_own_names_the_place(start: Start) -> None:
    def kills(example: object, directory: Path) -> str:
        os.kill(os.getpid(), signal.SIGSEGV)
        return ""

    assert fault(start(kills).run(1)) == "died of SIGSEGV in test_worker.py:kills"


@pytest.mark.parametrize("status", [0, 3])
def test_an_exit_is_told_with_its_status(start: Start, status: int) -> None:
    def leaves(example: int, directory: Path) -> str:
        os._exit(example)

    outcome = start(leaves).run(status)
    assert outcome.faults == {f"ended with exit status {status}": f"the process ended with exit status {status}"}
    assert outcome.ended_the_process


def test_a_subject_that_closes_every_file_has_ended_the_process(start: Start) -> None:
    def rule(example: bool, directory: Path) -> str:
        if example:
            os.closerange(3, 256)
        return "went well"

    worker = start(rule)
    assert worker.run(True).ended_the_process
    assert worker.run(False).refused == "went well"


def test_a_hang_names_its_place_and_the_next_example_works(start: Start) -> None:
    def rule(example: bool, directory: Path) -> str:
        if example:
            forever()
        return str(os.getpid())

    worker = start(rule, timeout=2.0)
    outcome = worker.run(True)
    # Where it hangs the innermost frame is another at each look; the subject's outermost one is the same.
    assert outcome.faults == {"hung in test_worker.py:rule": "the process hung in test_worker.py:rule"}
    assert outcome.ended_the_process
    assert "in forever" in outcome.output
    assert worker.run(False).refused.isdigit()


def test_a_hang_that_takes_no_notice_of_signals_is_ended(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SECONDS_TO_DUMP", 0.2)
    told = tmp_path / "pid"

    def ignores(example: object, directory: Path) -> str:
        signal.signal(signal.SIGABRT, signal.SIG_IGN)
        told.write_text(str(os.getpid()))
        forever()
        return ""

    outcome = start(ignores, timeout=0.5).run(1)
    assert outcome.faults == {"hung": "the process hung"}
    assert outcome.output == ""
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.read_text()), 0)


# What was printed


def test_what_a_process_printed_before_it_ended_comes_back(start: Start) -> None:
    def prints(example: object, directory: Path) -> str:
        print("by print")
        print("to standard error", file=sys.stderr)
        os.write(2, b"past Python: \xff\n")
        subprocess.run(["/bin/sh", "-c", "echo by another process"], check=True)
        print("no end of line", end="")
        sys.stdout.flush()
        os._exit(1)

    assert start(prints).run(1).output.splitlines() == [
        "by print",
        "to standard error",
        "past Python: \ufffd",
        "by another process",
        "no end of line",
    ]


def test_what_was_printed_is_that_of_the_last_example(start: Start) -> None:
    def rule(example: int, directory: Path) -> str:
        print(f"example {example}")
        if example == 3:
            os._exit(1)
        return ""

    worker = start(rule)
    assert [worker.run(number).output for number in range(3)] == ["", "", ""]
    assert worker.run(3).output == "example 3\n"


def test_surrogates_can_be_printed(start: Start) -> None:
    def prints(example: str, directory: Path) -> str:
        print(example)
        return "printed"

    assert start(prints).run("\ud800").refused == "printed"


def test_this_process_prints_nothing_of_it(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    def prints(example: object, directory: Path) -> str:
        print("theirs")
        os.write(1, b"theirs")
        return ""

    print("ours, before the fork")
    worker = start(prints)
    worker.run(1)
    worker.close()
    assert capfd.readouterr() == ("ours, before the fork\n", "")


# Memory

MIB = 1 << 20
kept: list[bytearray] = []


def grow(example: int, directory: Path) -> str:
    """Takes as many MiB as the example says, and keeps those of a negative one."""
    taken = kept if example < 0 else []
    for _ in range(abs(example)):
        taken.append(bytearray(MIB))
    return str(os.getpid())


def scatter(example: int, directory: Path) -> str:
    """Takes as much, and keeps a little beside each MiB: the allocator can give none of it back to the system."""
    taken = []
    for _ in range(example):
        taken.append(bytearray(MIB))
        kept.append(bytearray(1024))
    return str(os.getpid())


@pytest.mark.parametrize("rule", [grow, scatter])
def test_out_of_memory_is_told_and_the_process_goes_on_where_it_was_given_back(start: Start, rule: Rule) -> None:
    # glibc's allocator, where it has freed a large block once, keeps smaller ones when they are freed.
    bytearray(31 * MIB)
    worker = start(rule, memory_limit=48 * MIB)
    before = worker.run(1).refused
    outcome = worker.run(200)
    assert outcome.faults == {"ran out of memory": "MemoryError: "}
    assert outcome.ran_out_of_memory
    assert outcome.ended_the_process, "a person needs a process of its own to see it again"
    assert worker.run(1).refused == before


def test_out_of_memory_takes_another_process_where_it_was_kept(start: Start) -> None:
    worker = start(grow, memory_limit=64 * MIB)
    outcome = worker.run(-200)
    assert outcome.faults == {"ran out of memory": "MemoryError: "}
    assert worker.run(40).refused.isdigit(), "there is room again"


def test_an_example_is_not_blamed_for_what_those_before_it_have_used_up(start: Start) -> None:
    worker = start(grow, memory_limit=64 * MIB)
    outcomes = [worker.run(-20) for _ in range(8)]
    assert [outcome.faults for outcome in outcomes] == [{}] * 8
    assert len({outcome.refused for outcome in outcomes}) > 1, "a process has room for three of them"


def test_what_this_process_holds_does_not_count(start: Start) -> None:
    held = bytearray(96 * MIB)
    worker = start(lambda example, directory: str(len(held) + len(bytearray(example))), memory_limit=64 * MIB)
    assert worker.run(16 * MIB).refused == str(112 * MIB)


def test_a_memory_error_in_other_words_is_one(start: Start) -> None:
    def allocates(example: object, directory: Path) -> str:
        # What torch's allocator raises.
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:1] . DefaultCPUAllocator: can't allocate memory")

    assert start(allocates).run(1).ran_out_of_memory


# Those before it

state: list[str] = []


def stateful(example: str, directory: Path) -> str:
    state.append(example)
    if "poison" in state and example in ("dies", "hangs"):
        if example == "hangs":
            forever()
        os._exit(7)
    if example == "dies anyway":
        os._exit(8)
    return str(os.getpid())


def test_a_fault_that_needs_earlier_examples_is_told_so(start: Start) -> None:
    worker = start(stateful)
    assert worker.run("dies").faults == {}
    assert [worker.run(word).faults for word in ("poison", "fine")] == [{}, {}]
    outcome = worker.run("dies")
    assert outcome.faults == {
        "ended with exit status 7, not alone": "the process ended with exit status 7, but not when it is tried alone: "
        "one of the 3 before it may be to blame"
    }
    assert outcome.ended_the_process
    assert worker.run("dies").faults == {}, "the process in which it was tried alone is as good as new"


def test_a_hang_that_needs_earlier_examples_is_told_so(start: Start) -> None:
    worker = start(stateful, timeout=1.0)
    assert worker.run("poison").faults == {}
    assert fault(worker.run("hangs")) == "hung in test_worker.py:stateful, not alone"


def test_a_fault_that_comes_alone_too_is_told_as_such(start: Start) -> None:
    worker = start(stateful)
    assert worker.run("fine").faults == {}
    assert fault(worker.run("dies anyway")) == "ended with exit status 8"


def test_a_process_that_died_between_two_examples_is_told(start: Start) -> None:
    worker = start(pid)
    first = worker.run(1).refused
    os.kill(int(first), signal.SIGKILL)
    wait_for_end(int(first))
    assert fault(worker.run(2)) == "died of SIGKILL, not alone"
    third = worker.run(3)
    assert (third.faults, third.refused != first) == ({}, True)


# Files


def test_each_example_finds_an_empty_directory(start: Start, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("kept")

    def litters(example: str, directory: Path) -> str:
        found = ",".join(sorted(os.listdir(directory)))
        (directory / "file").write_text("left")
        (directory / "folder" / "inner").mkdir(parents=True)
        (directory / "folder" / "inner" / "file").write_text("left")
        (directory / "folder" / "inner" / "file").chmod(0o400)
        (directory / "link").symlink_to(elsewhere, target_is_directory=True)
        (directory / "dangling").symlink_to("nowhere")
        os.mkfifo(directory / "pipe")
        if example == "dies":
            os._exit(1)
        return f"found: {found}"

    worker = start(litters)
    assert [worker.run("fine").refused, worker.run("fine").refused] == ["found: ", "found: "]
    assert worker.run("dies").ended_the_process
    assert worker.run("fine").refused == "found: "
    assert (elsewhere / "kept").read_text() == "kept", "what a link leads to is not ours to remove"


def test_a_directory_that_the_subject_has_removed_is_made_again(start: Start) -> None:
    def removes(example: object, directory: Path) -> str:
        directory.rmdir()
        return "removed"

    worker = start(removes)
    assert [worker.run(1).refused, worker.run(2).refused] == ["removed", "removed"]


# Processes and descriptors


@pytest.fixture
def grandchildren(tmp_path: Path) -> Iterator[Path]:
    """A file for the numbers of processes that nobody else ends."""
    path = tmp_path / "grandchildren"
    path.touch()
    yield path
    for number in path.read_text().split():
        os.kill(int(number), signal.SIGKILL)


@pytest.mark.parametrize("ends", [False, True], ids=["goes on", "ends"])
def test_grandchildren_that_keep_the_pipe_open_are_not_waited_for(
    start: Start, grandchildren: Path, ends: bool
) -> None:
    def leaves(example: bool, directory: Path) -> str:
        child = os.fork()
        if child == 0:
            while True:
                signal.pause()
        with grandchildren.open("a") as file:
            print(child, file=file)
        if example:
            os._exit(5)
        return "went well"

    worker = start(leaves)
    outcome = worker.run(ends)
    assert (list(outcome.faults), outcome.refused) == (
        (["ended with exit status 5"], "") if ends else ([], "went well")
    )
    worker.close()
    assert len(grandchildren.read_text().split()) == 1
    for number in grandchildren.read_text().split():
        os.kill(int(number), 0)


def test_close_ends_the_process(start: Start) -> None:
    worker = start(pid)
    number = int(worker.run(1).refused)
    os.kill(number, 0)
    worker.close()
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)
    worker.close()
    assert int(worker.run(1).refused) != number, "it can be used again"


def test_close_without_a_process_does_nothing(start: Start) -> None:
    worker = start(pid)
    worker.close()
    worker.close()


def descriptors() -> dict[str, str]:
    """Number -> what it leads to, but for the directory that is read here."""
    found: dict[str, str] = {}
    for entry in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{entry}"
        if os.path.lexists(path):
            found[entry] = os.readlink(path)
    return found


def test_no_descriptor_is_left_after_many_restarts(start: Start) -> None:
    def leaves(example: object, directory: Path) -> str:
        os._exit(1)

    before = descriptors()
    worker = start(leaves)
    assert all(worker.run(number).ended_the_process for number in range(50))
    worker.close()
    assert descriptors() == before


def test_a_process_has_no_files_of_those_before_it(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_EXAMPLES", 1)
    worker = start(lambda example, directory: str(len(os.listdir("/proc/self/fd"))))
    counts = [worker.run(number).refused for number in range(6)]
    assert len(set(counts)) == 1, counts


PARENT = """
import os, sys
from pathlib import Path
from pytest_tensorizer.fuzz.worker import Worker

worker = Worker(lambda example, directory: str(os.getpid()), directory=Path(sys.argv[1]))
print(worker.run(1).refused, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "ends"])
def test_the_process_ends_with_its_parent(tmp_path: Path, killed: bool) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        number = int(parent.stdout.readline())
        # Opened while it runs: afterwards the number may be another's.
        handle = os.pidfd_open(number)
        if killed:
            parent.kill()
        else:
            parent.stdin.close()
        wait_for(handle)
        os.close(handle)
        parent.wait()


# What travels


def test_only_what_is_to_be_sent_travels(start: Start) -> None:
    class Example:
        def __init__(self, number: int) -> None:
            self.number = number
            self.lock = threading.Lock()  # cannot be pickled

    worker = start(lambda sent, directory: repr(sent), sends=lambda example: example.number * 2)
    assert worker.run(Example(21)).refused == "42"


def test_what_is_larger_than_a_pipe_travels_both_ways(start: Start) -> None:
    worker = start(lambda example, directory: example * 2)
    sent = "x" * (4 * MIB)
    assert worker.run(sent).refused == sent * 2


def test_what_a_process_died_of_while_it_was_sent_to_is_told(start: Start) -> None:
    class Deadly:
        """Ends the process that unpickles it."""

        def __reduce__(self) -> tuple[Callable[[int], object], tuple[int]]:
            return os._exit, (9,)

    assert fault(start(pid).run([Deadly(), "x" * (4 * MIB)])) == "ended with exit status 9"


def test_memory_that_nobody_has_written_to_is_not_zero(start: Start) -> None:
    """What a subject forgets to write must not look right."""

    def rule(example: int, directory: Path) -> str:
        libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p
        # So much comes from the kernel, which gives zeros.
        return str(sorted(set(ctypes.string_at(libc.malloc(ctypes.c_size_t(example)), example))))

    assert start(rule).run(MIB).refused == str([0xA5 ^ 0xFF] if hasattr(ctypes.CDLL(None), "mallopt") else [0])
