"""Is every ending told right, again and again? 200 isolated tests with a crash, a hang and a memory hog among them.

python benchmarks/hostile.py [runs [tests]]
"""

from __future__ import annotations

import collections
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

TESTS = """
import os, time
import pytest, torch

pytestmark = pytest.mark.fresh_process(timeout=10, memory_limit="1GiB")

@pytest.mark.parametrize("number", range({count} - 6))
def test_well(number, tmp_path):
    assert torch.ones(number + 1).sum() == number + 1
    (tmp_path / "file").write_text(str(number))

def test_crash():
    os.kill(os.getpid(), 11)

@pytest.mark.fresh_process(timeout=1)
def test_hang():
    time.sleep(60)

def test_hog():
    kept = []
    while True:
        kept.append(torch.zeros(1 << 24))

def test_exit():
    os._exit(0)

def test_fail():
    assert torch.ones(2).sum() == 3

def test_kill_the_zygote():
    os.kill(os.getppid(), 9)
    time.sleep(60)
"""

TOLD = {
    "test_crash": "died of SIGSEGV",
    "test_hang": "did not end in time and was killed",
    "test_hog": "can't allocate memory",
    "test_exit": "ended with exit status 0 before it had said that it was done",
    "test_fail": "assert tensor(2.) == 3",
    "test_kill_the_zygote": "the process that watched it died of SIGKILL",
}


def wrong(directory: Path, count: int, workers: int) -> list[str]:
    """What the report of one run says that is not so."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(workers), "--junitxml=out.xml"]
    subprocess.run(command, cwd=directory, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    found = []
    cases = list(ElementTree.parse(directory / "out.xml").iter("testcase"))
    names = collections.Counter(case.get("name", "") for case in cases)
    if len(names) != count or set(names.values()) != {1}:
        found.append(f"{len(names)} tests were reported, of {count}")
    for case in cases:
        name, failures = case.get("name", ""), [child for child in case if child.tag in ("failure", "error")]
        text = "".join(failure.text or "" for failure in failures)
        if (TOLD[name] not in text) if name in TOLD else failures:
            found.append(f"{name}: {text or 'passed'}")
    return found


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    bad = 0
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "test_it.py").write_text(TESTS.format(count=count))
        for number in range(runs):
            workers = 2 * (number % 2)
            start = time.perf_counter()
            found = wrong(directory, count, workers)
            bad += bool(found)
            print(f"run {number + 1}, -n {workers}: {time.perf_counter() - start:5.1f} s, {len(found)} wrong")
            for line in found:
                print("   ", line)
    print(f"{runs - bad} of {runs} runs of {count} tests were told right")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
