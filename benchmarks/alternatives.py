"""Other plugins that give a test a process of its own, beside `fresh_process`: what a test costs, what they tell.

Each is installed, without what it depends on beyond that, into a temporary directory, so this needs the package index.

    python benchmarks/alternatives.py [tests]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import NamedTuple


class Tool(NamedTuple):
    name: str
    packages: tuple[str, ...]
    mark: str
    arguments: tuple[str, ...] = ()


TOOLS = (
    Tool("fresh_process", (), "pytest.mark.fresh_process(timeout=20)"),
    Tool("fresh_process(method=spawn)", (), 'pytest.mark.fresh_process(timeout=20, method="spawn")'),
    Tool("pytest-forked", ("pytest-forked",), "pytest.mark.forked"),
    Tool("pytest-isolate", ("pytest-isolate", "dill", "filelock", "tblib"), "pytest.mark.isolate(timeout=20)"),
    Tool("pytest-isolated", ("pytest-isolated",), "pytest.mark.isolated(timeout=20)"),
    Tool("pytest-subproc", ("pytest-subproc",), "pytest.mark.subproc(timeout=20)"),
)

MANY = """
import pytest, torch

@pytest.mark.parametrize("number", range({count}))
@{mark}
def test_it(number):
    assert torch.ones(number + 1).sum() == number + 1
"""

PRODUCT = """
import pytest, torch

product = torch.rand(300, 300) @ torch.rand(300, 300)

@{mark}
def test_product():
    assert (product @ product).shape == (300, 300)
"""

ENDINGS = """
import os, signal
import pytest

pytestmark = {mark}

def test_pass(): ...

def test_fail():
    assert [1, 2] == [1, 3]

def test_skip():
    pytest.skip("why not")

@pytest.mark.xfail
def test_xfail():
    assert 0

@pytest.mark.xfail(strict=True)
def test_xpass(): ...

def test_exit():
    os._exit(0)

def test_crash():
    print("last words", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)
"""

EXPECTED = {
    "test_pass": "passed", "test_fail": "failed", "test_skip": "skipped", "test_xfail": "skipped",
    "test_xpass": "failed", "test_exit": "failed", "test_crash": "failed",
}  # fmt: skip
TOLD = {"signal": ("SIGSEGV", "signal 11"), "stack": ("in test_crash",), "output": ("last words",)}


class Bench:
    def __init__(self, directory: Path, tool: Tool) -> None:
        self._directory = directory / "tests"
        self._directory.mkdir(exist_ok=True)
        self._tool = tool
        self._environment = dict(os.environ)
        if tool.packages:
            target = directory / "packages" / tool.name
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            subprocess.run([*pip, "--target", str(target), *tool.packages], check=True)
            self._environment["PYTHONPATH"] = str(target)

    def run(self, tests: str, seconds: float = 60, **values: object) -> tuple[str, dict[str, str], str, float]:
        """("" or what went wrong as a whole, outcomes by the names of the tests, output, seconds) of a run."""
        (self._directory / "test_it.py").write_text(tests.format(mark=self._tool.mark, **values))
        report = self._directory / "report.xml"
        report.unlink(missing_ok=True)
        plugin = [] if not self._tool.packages else ["-p", "no:tensorizer"]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, f"--junitxml={report}"]
        start = time.perf_counter()
        with (self._directory / "output").open("w+") as output:
            process = subprocess.Popen(
                command, cwd=self._directory, env=self._environment, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()
                return f"hangs (killed after {seconds:.0f} s)", {}, "", seconds
            duration = time.perf_counter() - start
            output.seek(0)
            text = output.read()
        if not report.exists():
            return f"pytest ends with {process.returncode}", {}, text, duration
        outcomes: dict[str, str] = {}
        for case in ElementTree.parse(report).iter("testcase"):
            kinds = {child.tag for child in case}
            outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
            outcomes[case.get("name", "")] = outcome
        return "", outcomes, text, duration

    def cost(self, count: int) -> str:
        """Milliseconds of one more test."""
        wrong, _, _, few = self.run(MANY, count=1)
        if not wrong:
            wrong, outcomes, _, many = self.run(MANY, 300, count=1 + count)
            if not wrong and list(outcomes.values()) != ["passed"] * (1 + count):
                wrong = "tests fail"
        return wrong or f"{(many - few) / count * 1e3:.0f} ms"

    def product(self) -> str:
        wrong, outcomes, _, _ = self.run(PRODUCT)
        return wrong or outcomes.get("test_product", "missing")

    def endings(self) -> tuple[str, str]:
        wrong, outcomes, text, _ = self.run(ENDINGS)
        if wrong:
            return wrong, "-"
        differ = [
            f"{name}: {outcomes.get(name, 'missing')}" for name in EXPECTED if outcomes.get(name) != EXPECTED[name]
        ]
        crash = text.partition("_ test_crash _")[2]
        told = [what for what, words in TOLD.items() if any(word in crash for word in words)]
        return ", ".join(differ) or "as they are", ", ".join(told) or "nothing"


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    print("| tool | one more test | after a matrix product on import | outcomes | of a crash it tells |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        for tool in TOOLS:
            bench = Bench(Path(name), tool)
            print("|", " | ".join([tool.name, bench.cost(count), bench.product(), *bench.endings()]), "|", flush=True)


if __name__ == "__main__":
    main()
