"""Running pytest on a directory of scenario tests, and what came of each of them, report by report."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The reports as other plugins see them; only in the process that the user started.
RECORDER = """
import json, os, re
import pytest

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(os.environ["RECORD"]))
    if getattr(config, "workerinput", {}).get("workerid") != "clean":
        os.environ["MAIN_PID"] = str(os.getpid())

class Recorder:
    def __init__(self, path):
        self.path = path

    def write(self, **data):
        with open(self.path, "a") as file:
            print(json.dumps(data), file=file)

    def pytest_runtest_logreport(self, report):
        self.write(
            nodeid=report.nodeid, when=report.when, outcome=report.outcome, xfail=getattr(report, "wasxfail", None),
            sections=report.sections, text=re.sub(r"^\\[gw.*\\n", "", report.longreprtext),
            properties=report.user_properties, location=report.location, duration=report.duration,
        )

    def pytest_warning_recorded(self, warning_message, when, nodeid, location):
        self.write(
            warning=str(warning_message.message), category=warning_message.category.__name__, nodeid=nodeid,
            when=when, line=warning_message.lineno, file=os.path.basename(warning_message.filename),
        )

def pytest_collection_modifyitems(items):
    if "ISOLATE" in os.environ:
        for item in items:
            item.add_marker(pytest.mark.fresh_process(timeout=60))
"""


@dataclass(frozen=True)
class Run:
    """One run of pytest: its exit status, what it showed, and every report and warning."""

    returncode: int
    text: str
    records: list[dict[str, Any]]

    def reports(self, name: str) -> list[dict[str, Any]]:
        """The reports of the test whose id ends with `name`, in the order in which they came."""
        return [r for r in self.records if "outcome" in r and r["nodeid"].endswith(f"::{name}")]

    def outcomes(self, name: str) -> dict[str, str]:
        """Phase -> outcome. Raises AssertionError if a phase was told twice."""
        reports = self.reports(name)
        phases = {report["when"]: report["outcome"] for report in reports}
        assert len(phases) == len(reports), f"{name} was reported more than once: {reports}"
        return phases

    def failure(self, name: str) -> str:
        """The text of the one phase that failed, and all that was captured."""
        (report,) = [report for report in self.reports(name) if report["outcome"] == "failed"]
        return "\n".join([report["text"], *(f"--- {title} ---\n{text}" for title, text in report["sections"])])


def environment(directory: Path, **more: str) -> dict[str, str]:
    """That of a user's shell: without what the pytest that runs these tests has put there."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    return {**kept, "RECORD": str(directory / "record.jsonl"), "PYTHONDONTWRITEBYTECODE": "1", **more}


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *args]


def run_pytest(directory: Path, *args: str, cwd: Path | None = None, cache: bool = False, **variables: str) -> Run:
    """Run pytest in `directory` (or `cwd`); the recorder of `directory`'s conftest tells what happened."""
    record = directory / "record.jsonl"
    record.unlink(missing_ok=True)
    done = subprocess.run(
        [argument for argument in command(*args) if not cache or argument not in ("-p", "no:cacheprovider")],
        cwd=cwd or directory,
        env=environment(directory, **variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    records = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    return Run(done.returncode, done.stdout, records)


def write(directory: Path, **files: str) -> Path:
    """Files `name`.py, and a conftest with the recorder."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, source in {"conftest": "", **files}.items():
        head = RECORDER if name == "conftest" else ""
        (directory / f"{name}.py").write_text(head + textwrap.dedent(source))
    return directory


def without_numbers(text: str) -> str:
    """`text` without what differs from one process to the next."""
    return re.sub(r"0x[0-9a-f]+", "0x…", text)


def junit(path: Path) -> list[tuple[Any, ...]]:
    """(class, name, what is inside) of each testcase, without times."""
    return [
        (
            case.get("classname"),
            case.get("name"),
            [without_numbers(ElementTree.tostring(child, "unicode")) for child in case],
        )
        for case in ElementTree.parse(path).iter("testcase")
    ]


def wait_for(path: Path, seconds: float = 20) -> str:
    """The text of the file, once it is there."""
    deadline = time.monotonic() + seconds
    while not (path.exists() and path.read_text().endswith("\n")):
        assert time.monotonic() < deadline, f"{path.name} did not come"
        time.sleep(0.02)
    return path.read_text()


def is_running(pid: int) -> bool:
    """Whether the process does anything still: a zombie that nobody has reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def still_running(pids: list[int], seconds: float = 5) -> list[int]:
    """Those of `pids` that have not ended within `seconds`."""
    deadline = time.monotonic() + seconds
    while (left := [pid for pid in pids if is_running(pid)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left
