"""What the plugin adds to a pytest run that does not use it: CPU time of `pytest --co` in an empty directory.

Runs with and without the plugin alternate, so that a busy machine slows both; medians of user and system time. Where
valgrind is installed, the instructions of one run each as well, which do not depend on what else the machine does.

    python benchmarks/startup.py [runs]
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile


def cpu_seconds(directory: str, *arguments: str) -> float:
    """User and system time of one run, from the kernel's account of the process."""
    command = [sys.executable, "-m", "pytest", "--co", "-q", "-p", "no:cacheprovider", *arguments]
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 5, f"pytest ended with {process.returncode}, not with 5 (nothing collected)"
    return usage.ru_utime + usage.ru_stime


def instructions(directory: str, *arguments: str) -> int:
    """Instructions executed in user mode, as callgrind counts them."""
    command = [sys.executable, "-m", "pytest", "--co", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *command],
        cwd=directory, env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True,
    )  # fmt: skip
    (line,) = [line for line in done.stderr.splitlines() if "Collected :" in line]
    return int(line.split()[-1])


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    without, with_it = [], []
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(runs):
            without.append(cpu_seconds(directory, "-p", "no:tensorizer"))
            with_it.append(cpu_seconds(directory))
        counts = []
        if shutil.which("valgrind"):
            counts = [instructions(directory, "-p", "no:tensorizer"), instructions(directory)]
    added = [b - a for a, b in zip(without, with_it, strict=True)]
    print(f"pytest --co in an empty directory, {runs} runs each")
    print(f"  without the plugin  {statistics.median(without) * 1000:7.1f} ms of CPU")
    print(f"  with it             {statistics.median(with_it) * 1000:7.1f} ms of CPU")
    print(f"  added               {statistics.median(added) * 1000:7.1f} ms (median of the pairs)")
    print(f"  ratio               {statistics.median(with_it) / statistics.median(without):7.3f}")
    if counts:
        print(f"  ratio of the counts of instructions {counts[1] / counts[0]:7.4f}")


if __name__ == "__main__":
    main()
