"""How fast is `pytest_tensorizer.identity`, and how much memory does it take?

    python benchmarks/identity.py

Prints, for equal tensors of three sizes, the time of `identical` against `numpy.array_equal` of the same
bytes as uint8 (the yardstick: at most 1.5) and as uint64. They are timed in turn, so that a busy machine
slows all of them, and the median is taken. Of 64 KiB, most of the time is the fixed cost of a call.

Then, on Linux, the peak of memory beyond the two tensors, each measured in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from pytest_tensorizer.identity import identical

SIZES = {"64 KiB": 1 << 16, "16 MiB": 1 << 24, "256 MiB": 1 << 28}

# Each makes two tensors of 256 MiB; in some nothing but a copy lets the elements be compared.
LAYOUTS = {
    "contiguous": "a = torch.ones(8192, 8192); b = a.clone()",
    "both transposed": "a = torch.ones(8192, 8192); b = a.clone(); a, b = a.t(), b.t()",
    "one transposed": "a = torch.ones(8192, 8192); b = a.clone(); a = a.t()",
    "one sliced": "a = torch.ones(8192, 8200)[:, :8192]; b = torch.ones(8192, 8192)",
    "one conjugated": "b = torch.full((4096, 4096), 1 - 1j, dtype=torch.complex128); "
    "a = torch.full_like(b, 1 + 1j).conj()",
    "contiguous, all elements differ": "a = torch.ones(8192, 8192); b = a.clone().zero_()",
}

PROBE = """
import pathlib, re, sys, time, torch
sys.path.insert(0, {root!r})
from pytest_tensorizer.identity import identical
identical(torch.ones(8), torch.zeros(8)); identical(torch.ones(9, 9).t(), torch.zeros(9, 9))
def peak():  # not ru_maxrss, which begins with that of the parent
    return int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
{make}
before = peak()
start = time.perf_counter()
identical(a, b)
seconds = time.perf_counter() - start
print(peak() - before, seconds)
"""


def interleaved(variants: dict[str, Callable[[], bool]], repeats: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(repeats):
        for name, variant in variants.items():
            start = time.perf_counter()
            assert variant()
            times[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in times.items()}


def main() -> None:
    print(f"torch {torch.__version__} with {torch.get_num_threads()} threads, NumPy {np.__version__}\n")
    print(f"{'size':>8}  {'identical':>12}  {'GB/s':>5}  {'x NumPy uint8':>13}  {'x NumPy uint64':>14}")
    for label, size in SIZES.items():
        a = torch.randint(-(2**31), 2**31, (size // 4,), dtype=torch.int32).view(torch.float32)
        b = a.clone()
        x, y = a.numpy(), b.numpy()
        times = interleaved(
            {
                "identical": lambda a=a, b=b: identical(a, b),  # type: ignore[misc]
                "uint8": lambda x=x, y=y: np.array_equal(x.view(np.uint8), y.view(np.uint8)),  # type: ignore[misc]
                "uint64": lambda x=x, y=y: np.array_equal(x.view(np.uint64), y.view(np.uint64)),  # type: ignore[misc]
            },
            repeats=max(5, min(1000, (1 << 28) // size)),
        )
        ours = times["identical"]
        print(
            f"{label:>8}  {ours * 1e6:>9,.0f} us  {size / ours / 1e9:>5.1f}  "
            f"{ours / times['uint8']:>13.2f}  {ours / times['uint64']:>14.2f}"
        )
    if sys.platform != "linux":
        return
    print(f"\n{'two tensors of 256 MiB':>32}  {'extra peak':>10}  {'time':>8}")
    for label, make in LAYOUTS.items():
        script = PROBE.format(root=str(Path(__file__).parent.parent), make=make)
        result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        extra, seconds = result.stdout.split()
        print(f"{label:>32}  {int(extra) / 1024:>6.0f} MiB  {float(seconds) * 1e3:>5.0f} ms")


if __name__ == "__main__":
    main()
