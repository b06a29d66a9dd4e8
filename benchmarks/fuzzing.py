"""How many damaged files a second does the search check in clean processes, and does it name the one that crashes?

    python benchmarks/fuzzing.py [SECONDS]

For each format SECONDS (10) of what `--tensorizer-fuzz` does with damaged files, without making failures small: drawn
here, and tried in a process of their own with a limit of time and memory, on one core, many in each process. The
yardstick is 300 a second a core. Beside it, what a process for each would come to. Then the same with a subject that
crashes on some: each must be told, and no other.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from hypothesis import Phase, given, settings

sys.path.insert(0, str(Path(__file__).parent.parent))

from pytest_tensorizer import formats
from pytest_tensorizer.formats import Format
from pytest_tensorizer.fuzz import properties
from pytest_tensorizer.fuzz.worker import Worker
from pytest_tensorizer.strategies import Damaged, damaged
from pytest_tensorizer.strategies.profiles import FUZZ, PROFILES

DRAWN = settings(PROFILES[FUZZ], max_examples=100_000, database=None, derandomize=True, phases=[Phase.generate])


class _Enough(BaseException):
    pass


def rate(file: bytes, check: Callable[[Damaged], object], seconds: float) -> float:
    """Damaged files a second that are drawn and checked."""
    started = time.perf_counter()
    count = 0

    @DRAWN
    @given(damaged(file))
    def search(example: Damaged) -> None:
        nonlocal count
        check(example)
        count += 1
        if time.perf_counter() > started + seconds:
            raise _Enough

    with contextlib.suppress(_Enough):
        search()
    return count / (time.perf_counter() - started)


def rule(format: Format, file: bytes) -> Callable[[Any, Path], str]:
    return lambda edits, directory: properties.damaged_file(format, Damaged(file, edits), directory)


def measure(format: Format, seconds: float, directory: Path) -> None:
    made = directory / "made"

    def make(example: object, inner: Path) -> str:
        made.write_bytes(properties.good_file(format, inner))
        return ""

    maker = Worker(make, directory=directory)
    assert not maker.run(None).faults
    maker.close()
    file = made.read_bytes()
    tried = rule(format, file)

    together = Worker(tried, directory=directory, sends=attrgetter("edits"))
    batched = rate(file, together.run, seconds)
    together.close()

    def alone(example: Damaged) -> None:
        worker = Worker(tried, directory=directory, sends=attrgetter("edits"))
        worker.run(example)
        worker.close()

    each = rate(file, alone, seconds / 4)
    print(
        f"{format.name}: a file of {len(file):,} bytes; {batched:.0f} damaged ones a second, many in a process; "
        f"{each:.0f} with a process each: {batched / each:.1f} times as many"
    )


def crashing(format: Format, directory: Path, every: int = 200, count: int = 4000) -> None:
    """One in `every` kills the process."""
    file = properties.good_file(format, directory)
    tried = rule(format, file)

    def rule_that_crashes(sent: tuple[bool, Any], inner: Path) -> str:
        if sent[0]:
            os.kill(os.getpid(), signal.SIGSEGV)
        return tried(sent[1], inner)

    worker = Worker(rule_that_crashes, directory=directory, sends=lambda example: example)
    told = wrong = number = 0

    @settings(DRAWN, max_examples=count)
    @given(damaged(file))
    def search(example: Damaged) -> None:
        nonlocal told, wrong, number
        number += 1
        crashes = number % every == 0
        outcome = worker.run((crashes, example.edits))
        is_told = any(fault.startswith("died of SIGSEGV") for fault in outcome.faults)
        told += is_told
        wrong += is_told != crashes

    search()
    worker.close()
    print(f"{format.name}: {number} damaged files, {number // every} of which crash: {told} told, {wrong} told wrongly")


def main() -> None:
    torch.set_num_threads(1)
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    for name in formats.BUILTIN:
        with tempfile.TemporaryDirectory() as directory:
            measure(formats.resolve(name), seconds, Path(directory))
    with tempfile.TemporaryDirectory() as directory:
        crashing(formats.resolve("safetensors"), Path(directory))


if __name__ == "__main__":
    main()
