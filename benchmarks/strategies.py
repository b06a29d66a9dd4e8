"""How many examples a second do `pytest_tensorizer.strategies` draw, and what is among them?

    python benchmarks/strategies.py [--hypothesis-torch PYTHON]

Prints, for float32 tensors of (8, 16), the examples a second of `tensors`, of `hypothesis.extra.numpy.arrays` with
`torch.from_numpy`, and, if `PYTHON` is an interpreter that has the package, of hypothesis-torch. Make one so:

    python -m venv ht && ht/bin/pip install torch==2.13.0 hypothesis-torch hypothesis numpy

The same code measures each, in processes of their own, in turn; the ratios are those of a round, and the median of them
is taken (the yardsticks: at least 1.5 times extra.numpy and 3 times hypothesis-torch). It is the time of the processor,
so that a busy machine does not count. Then the cost of a draw of each other strategy, and what 600 draws cover.
"""

from __future__ import annotations

import argparse
import importlib
import io
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, given, settings, strategies

sys.path.insert(0, str(Path(__file__).parent.parent))

ROUNDS = 7
EXAMPLES = 500
SHAPE = (8, 16)
NAMES = {"ours": "tensors", "numpy": "extra.numpy", "theirs": "hypothesis-torch"}


def examples_per_second(strategy: strategies.SearchStrategy[Any], examples: int = EXAMPLES) -> float:
    """Those of one run of Hypothesis, without shrinking; the first draws, which fill caches, do not count."""
    seen = 0

    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def run(value: object) -> None:
        nonlocal seen
        seen += 1

    run()
    seen, start = 0, time.process_time()
    run()
    return seen / (time.process_time() - start)


def compared(name: str) -> strategies.SearchStrategy[Any]:
    """What is compared. Each library is imported only where it is asked for: the other interpreter has not all."""
    if name == "ours":
        from pytest_tensorizer.strategies import tensors

        return tensors(torch.float32, SHAPE)
    if name == "numpy":
        import numpy
        from hypothesis.extra.numpy import arrays

        return arrays(numpy.float32, SHAPE).map(torch.from_numpy)
    strategy: strategies.SearchStrategy[Any] = importlib.import_module("hypothesis_torch").tensor_strategy(
        torch.float32, SHAPE, device=torch.device("cpu"), layout=torch.strided, requires_grad=False
    )
    return strategy


def measured(name: str, python: str) -> float:
    """The examples a second in a process of its own."""
    command = [python, __file__, "--measure", name]
    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def compare(python: str | None) -> None:
    """Print the ratios to others."""
    pythons = {"ours": sys.executable, "numpy": sys.executable} | ({"theirs": python} if python else {})
    rounds = [{name: measured(name, path) for name, path in pythons.items()} for _ in range(ROUNDS)]
    print(f"{'float32 of (8, 16)':>20}  {'examples/s':>10}  {'ours is faster by':>17}")
    for name, label in NAMES.items():
        if name not in pythons:
            print(f"{label:>20}  not measured: give --hypothesis-torch PYTHON")
            continue
        speed, ratio = median(each[name] for each in rounds), median(each["ours"] / each[name] for each in rounds)
        print(f"{label:>20}  {speed:>10,.0f}  {ratio:>17.2f}")


def costs() -> None:
    """Print what a draw of each strategy takes."""
    from pytest_tensorizer.strategies import (
        build,
        damaged,
        dtypes,
        module_specs,
        modules,
        names,
        shapes,
        sparse_tensors,
        state_dict_specs,
        state_dicts,
        tensor_specs,
        tensors,
    )

    saved = io.BytesIO()
    torch.save({"a": torch.ones(8)}, saved)
    table = {
        "dtypes()": dtypes(),
        "shapes()": shapes(),
        "names()": names(),
        "tensor_specs()": tensor_specs(),
        "tensors()": tensors(),
        "sparse_tensors()": sparse_tensors(),
        "sparse_tensors(), built": sparse_tensors().map(build),
        "state_dict_specs()": state_dict_specs(),
        "state_dicts()": state_dicts(),
        "module_specs()": module_specs(),
        "modules()": modules(),
        "damaged() of a zip": damaged(saved.getvalue()),
    }
    print(f"\n{'strategy':>23}  {'draws/s':>8}  {'each':>8}")
    for name, strategy in table.items():
        speed = examples_per_second(strategy)
        print(f"{name:>23}  {speed:>8,.0f}  {1e6 / speed:>5,.0f} us")


def coverage() -> None:
    """Print in how many of 600 draws each trait occurs; of dtypes, how many there are."""
    from pytest_tensorizer.strategies import module_specs, sparse_tensors, state_dict_specs, tensor_specs
    from pytest_tensorizer.strategies.dtypes import all_dtypes

    for strategy in (tensor_specs, sparse_tensors, state_dict_specs, module_specs):
        seen: Counter[str] = Counter()

        @settings(
            max_examples=600, database=None, deadline=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(strategy().map(lambda spec: seen.update(spec.traits)))
        def run(drawn: None) -> None:
            pass

        run()
        dtypes = [trait for trait in seen if trait.startswith("dtype:")]
        print(f"\n600 of {strategy.__name__}(): {len(dtypes)} of {len(all_dtypes())} dtypes")
        for name, count in sorted(seen.items()):
            if name not in dtypes:
                print(f"{name:>23}  {count:>5}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--hypothesis-torch", metavar="PYTHON", help="an interpreter that has hypothesis-torch")
    parser.add_argument("--measure", choices=NAMES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(examples_per_second(compared(options.measure)))
        return
    compare(options.hypothesis_torch)
    costs()
    coverage()


if __name__ == "__main__":
    main()
