"""Findings as files: a person can read one, run it and paste from it, whatever is in the example."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_tensorizer.formats.torch import TorchFormat
from pytest_tensorizer.fuzz import properties
from pytest_tensorizer.fuzz.findings import DIRECTORY, Origin
from pytest_tensorizer.fuzz.outcome import Outcome
from pytest_tensorizer.fuzz.search import Finding
from pytest_tensorizer.strategies import Cut, Damaged, Dense, EmbedsSpec, Payload, StateDict
from pytest_tensorizer.suite.known_issues import parse

ROOT = Path(__file__).parents[2]
ORIGIN = Origin(
    check="roundtrip/any-state-dict", subject="mine", version="1.0", rule="round_trip", target="weak:Mine",
    fixture="tensorizer_formats", limits='timeout=20.0, memory_limit="2 GiB"',
)  # fmt: skip
EXAMPLE = StateDict({"a": Dense(torch.float32, (2,), [1.0, -0.0])})
FOUND = Finding("wrong bits", EXAMPLE, Outcome({"wrong bits": "'a' differs"}), is_small=True)
MINE = """
import os
from pytest_tensorizer.formats.torch import TorchFormat
from pytest_tensorizer.prompt_embeds import load_prompt_embeds

class Mine(TorchFormat):
    name = "mine"

    def save(self, tensors, target, **options):
        super().save({name: tensor + 0 for name, tensor in tensors.items()}, target)

class Dies(TorchFormat):
    name = "dies"

    def load(self, source, **options):
        os.abort()

def accepts(payload, spec):
    try:
        return load_prompt_embeds(payload, spec)
    except ValueError:
        return None
"""
CONFTEST = """
import pytest, weak

@pytest.fixture(scope="session")
def tensorizer_formats():
    return [weak.Mine()]
"""


def run(directory: Path, path: Path) -> subprocess.CompletedProcess[str]:
    (directory / "weak.py").write_text(MINE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path.relative_to(directory))]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("target", ["weak:Mine", ""], ids=["option", "fixture"])
def test_the_file_reproduces_it(tmp_path: Path, target: str) -> None:
    if not target:
        (tmp_path / "conftest.py").write_text(CONFTEST)
    path = replace(ORIGIN, target=target).write(tmp_path, FOUND)
    done = run(tmp_path, path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "'a' differs in 1 of 2 elements" in done.stdout
    assert f"python -m pytest {DIRECTORY}/{path.name}" in path.read_text()


def test_once_it_is_mended_the_file_passes(tmp_path: Path) -> None:
    path = replace(ORIGIN, target="torch").write(tmp_path, FOUND)
    done = run(tmp_path, path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_what_ends_its_process_ends_one_of_its_own(tmp_path: Path) -> None:
    file = properties.good_file(TorchFormat(), tmp_path)
    died = Outcome({"died of SIGABRT in weak.py:load": "the process died"}, output="Fatal Python error: Aborted\n")
    finding = Finding("died of SIGABRT in weak.py:load", Damaged(file, [Cut(7)]), died)
    origin = replace(ORIGIN, check="integrity/damaged-file", rule="damaged_file", target="weak:Dies")
    path = origin.write(tmp_path, finding)
    assert '@pytest.mark.fresh_process(timeout=20.0, memory_limit="2 GiB")\n' in path.read_text()
    done = run(tmp_path, path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "died of SIGABRT" in done.stdout
    assert "1 failed" in done.stdout


def test_a_loader_is_reproduced_too(tmp_path: Path) -> None:
    example = Payload(Dense(torch.float32, (1, 2), [1.0]), EmbedsSpec(2, torch.float32), broken="truncated")
    finding = Finding("accepted it", example, Outcome({"accepted it": "accepted what is no embedding"}))
    origin = replace(
        ORIGIN, check="prompt-embeds/any-payload", rule="prompt_embeds", target="weak:accepts",
        fixture="tensorizer_prompt_embeds_loader",
    )  # fmt: skip
    done = run(tmp_path, origin.write(tmp_path, finding))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "accepted what is no embedding of this model" in done.stdout


def test_the_test_can_be_pasted_without_the_rest() -> None:
    assert ORIGIN.test(FOUND) == (
        "from pytest_tensorizer import formats\n"
        "from pytest_tensorizer.fuzz import properties\n"
        "from pytest_tensorizer.strategies import *\n\n"
        "example = StateDict({'a': Dense(torch.float32, (2,), [1.0, -0.0])})\n\n\n"
        "def test_roundtrip_any_state_dict(tmp_path):\n"
        "    properties.round_trip(formats.resolve('weak:Mine'), example, tmp_path)\n"
    )


@pytest.mark.parametrize("fault", ["wrong bits", 'raised KeyError in "a\\b".py:load'])
def test_the_known_issue_that_is_proposed_covers_it(tmp_path: Path, fault: str) -> None:
    finding = replace(FOUND, fault=fault, outcome=Outcome({fault: "it differs"}))
    told = ORIGIN.excuse(finding)
    file = ast.parse(ORIGIN.write(tmp_path, finding).read_text())
    assert f"As a known issue: {told}" in (ast.get_docstring(file) or "")
    entry = f"""[[issue]]
id = "M1"
applies = "mine<2"
severity = "loss"
reason = "It does."
{told}
"""
    (issue,) = parse(entry, "issues.toml")
    (excuse,) = issue.fuzz
    assert excuse.covers(ORIGIN.check, EXAMPLE.traits, fault)
    assert not excuse.covers(ORIGIN.check, frozenset(), fault)


AWKWARD = [
    "plain",
    'ends with """',
    'a quote at the end "',
    "back\\slash \\N{x} \\u12",
    "two\nlines\r\nand\ttabs",
    "nul \0 and bell \a",
    "é 😀 \u202e \ufeff",
    "lone \ud800 surrogate",
    "\u2028 separators \x85 \x0c",
]


@pytest.mark.parametrize("text", AWKWARD, ids=[str(number) for number in range(len(AWKWARD))])
def test_no_text_breaks_the_file(tmp_path: Path, text: str) -> None:
    outcome = Outcome({f"raised KeyError in {text}.py:load": text}, output=f"{text}\n{text}")
    example = StateDict({text: Dense(torch.float32, (), [1.0])})
    path = ORIGIN.write(tmp_path, Finding(f"raised KeyError in {text}.py:load", example, outcome))
    tree = ast.parse(path.read_bytes())
    assert "Run it with: python -m pytest" in (ast.get_docstring(tree) or "")
    names: dict[str, Any] = {}
    exec(compile(tree, str(path), "exec"), names)
    assert names["example"] == example
    assert callable(names["test_roundtrip_any_state_dict"])


def test_a_failure_has_one_file_in_every_run(tmp_path: Path) -> None:
    first = ORIGIN.write(tmp_path, FOUND)
    simpler = StateDict({"a": Dense(torch.float32, (1,), [-0.0])})
    again = ORIGIN.write(tmp_path, replace(FOUND, example=simpler))
    assert again == first
    assert repr(simpler) in first.read_text()
    assert len(list(first.parent.iterdir())) == 1


def test_other_failures_have_other_files(tmp_path: Path) -> None:
    others = [
        (ORIGIN, replace(FOUND, fault="wrong dtype", outcome=Outcome({"wrong dtype": "'a'"}))),
        (replace(ORIGIN, subject="other"), FOUND),
        (replace(ORIGIN, check="modules/any-module"), FOUND),
    ]
    paths = {origin.write(tmp_path, finding) for origin, finding in [(ORIGIN, FOUND), *others]}
    assert len(paths) == 4
    assert all(path.parent == tmp_path / DIRECTORY and path.name.isascii() for path in paths)


def test_where_there_was_no_time_to_make_it_simple_the_file_says_so(tmp_path: Path) -> None:
    told = "There was no time to find a simpler example."
    assert told not in ORIGIN.write(tmp_path, FOUND).read_text()
    assert told in ORIGIN.write(tmp_path, replace(FOUND, is_small=False)).read_text()


def test_a_long_output_is_cut(tmp_path: Path) -> None:
    outcome = Outcome({"hung": "x" * 10_000}, output="".join(f"line {number}\n" for number in range(1000)))
    text = ORIGIN.write(tmp_path, Finding("hung", EXAMPLE, outcome)).read_text()
    assert "line 19\n" in text
    assert "line 20\n" not in text
    assert len(text) < 3000


def test_where_it_cannot_be_written_the_old_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ORIGIN.write(tmp_path, FOUND)
    before = path.read_text()

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        ORIGIN.write(tmp_path, replace(FOUND, is_small=False))
    assert path.read_text() == before
    assert [*path.parent.iterdir()] == [path]


def test_a_file_in_the_place_of_the_directory_is_told_and_left(tmp_path: Path) -> None:
    (tmp_path / DIRECTORY).write_text("mine")
    with pytest.raises(OSError, match=DIRECTORY):
        ORIGIN.write(tmp_path, FOUND)
    assert (tmp_path / DIRECTORY).read_text() == "mine"
