"""What a test in a clean process costs, beside other ways to give each test a process of its own.

A directory of trivial tests that import torch is run in each way, all in one go, and what a run costs without a test
is taken off. The bare fork is `os.fork` and `wait` in a process that has torch loaded: nothing can be faster.

    python benchmarks/isolation.py [tests]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = """
import pytest, torch

@pytest.mark.parametrize("number", range({count}))
{marker}
def test_it(number):
    import torch
    assert torch.ones(number + 1).sum() == number + 1
"""

BARE_FORK = """
import os, time, torch

torch.set_num_threads(1)
seconds = []
for _ in range(200):
    start = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    seconds.append(time.perf_counter() - start)
print(sorted(seconds)[100])
"""


def seconds_of(directory: Path, count: int, marker: str, *arguments: str) -> float:
    (directory / "test_it.py").write_text(TESTS.format(count=count, marker=marker))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    start = time.perf_counter()
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    assert f"{count} passed in" in done.stdout, done.stdout
    return seconds


def per_test(directory: Path, count: int, marker: str, *arguments: str) -> float:
    """Seconds of one more test, from the difference of a run with one of them and a run with `count` more."""
    few = seconds_of(directory, 1, marker, *arguments)
    return (seconds_of(directory, 1 + count, marker, *arguments) - few) / count


def fresh_interpreter() -> float:
    """Seconds of an interpreter that imports pytest and torch, and does nothing: the floor of a process per test."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import pytest, torch"], check=True)
    return time.perf_counter() - start


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        seconds_of(directory, 1, "")  # warms the caches of the disk
        bare, zygote, start = [], [], []
        for _ in range(3):
            bare.append(float(subprocess.check_output([sys.executable, "-c", BARE_FORK])))
            zygote.append(per_test(directory, count, "@pytest.mark.fresh_process"))
            in_process = seconds_of(directory, 1, "")
            start.append(seconds_of(directory, 1, "@pytest.mark.fresh_process") - in_process)
        spawn = per_test(directory, 5, '@pytest.mark.fresh_process(method="spawn")')
        interpreter = statistics.median(fresh_interpreter() for _ in range(5))
        fork, one = statistics.median(bare), statistics.median(zygote)
    print(f"one more test that imports torch, of {count} (medians of 3)")
    print(f"  bare fork and wait               {fork * 1e3:8.1f} ms")
    print(f"  zygote                           {one * 1e3:8.1f} ms  {one / fork:6.1f} times the bare fork")
    print(f"  fresh interpreter, method=spawn  {spawn * 1e3:8.1f} ms  {spawn / one:6.1f} times the zygote")
    print(f"  importing pytest and torch, only {interpreter * 1e3:8.1f} ms  {interpreter / one:6.1f} times the zygote")
    print(f"a session of one test takes {in_process:.2f} s, and its zygote {statistics.median(start):.2f} s more")


if __name__ == "__main__":
    main()
