"""How a check of the suite searches: what is known passes, and what is new is told, with the code that shows it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from pytest_tensorizer import formats
from pytest_tensorizer.fuzz import examples, progress, properties
from pytest_tensorizer.fuzz.outcome import Violation
from pytest_tensorizer.process.limits import zygotes_are_available
from pytest_tensorizer.strategies.profiles import FUZZ, PROFILES
from pytest_tensorizer.suite.check import Check
from pytest_tensorizer.suite.known_issues import Excuse, KnownIssue
from pytest_tensorizer.suite.search import PropertySearch
from pytest_tensorizer.suite.subjects import Subject

pytestmark = pytest.mark.skipif(not zygotes_are_available(), reason="examples are tried in forks, with pidfds")

CHECK = Check("area/slug", "must", "format:mine", "")
SUBJECT = Subject("format", "mine", "1.5", "tests.faulty.formats:LosesOffsets")


@dataclass(frozen=True)
class Number:
    value: int

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"odd" if self.value % 2 else "even"})


NUMBERS = st.integers(0, 1000).map(Number)


def _issue(
    id: str = "M1", *, applies: str = "mine<2", check: str = "area/*", traits: Any = (), failure: str = "*"
) -> Any:
    return KnownIssue(id, (), applies, "It does.", "loss", None, (Excuse(check, traits, failure),), "issues.toml", 1)


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes one, in which nothing is known of other runs."""
    monkeypatch.delenv(progress.VARIABLE, raising=False)
    monkeypatch.setitem(PROFILES, FUZZ, settings(PROFILES[FUZZ], database=None))
    (tmp_path / "work").mkdir()

    def make(*issues: KnownIssue, subject: Subject = SUBJECT, **options: Any) -> PropertySearch:
        values: dict[str, Any] = {"directory": tmp_path / "work", "seconds": None, "root": None, **options}
        return PropertySearch(CHECK, subject, list(issues), **values)

    return make


def _failed(search: PropertySearch, rule: Any, drawn: Any = NUMBERS, tested: object = None, **options: Any) -> str:
    with pytest.raises(pytest.fail.Exception) as caught:
        search.run(rule, tested, drawn, **options)
    assert not caught.value.pytrace, "the traceback is ours, and of use to nobody"
    return str(caught.value)


def _facts(search: PropertySearch) -> dict[str, Any]:
    """But for the time, which is another in each run."""
    facts = dict(search.facts)
    assert facts.pop("seconds") > 0
    return facts


def good(tested: object, example: Number, directory: Path) -> str:
    return "too large" if example.value > 900 else ""


def breaks_odd(tested: object, example: Number, directory: Path) -> str:
    if example.value % 2:
        raise Violation({"wrong parity": f"{example.value} is odd"})
    return ""


def breaks_twice(tested: object, example: Number, directory: Path) -> str:
    if example.value > 500:
        raise Violation({"wrong size": f"{example.value} is large"})
    return breaks_odd(tested, example, directory)


def breaks_all_and_large(tested: object, example: Number, directory: Path) -> str:
    faults = {"wrong": "it is wrong"}
    if example.value > 500:
        faults["large"] = f"{example.value} is large"
    raise Violation(faults)


# Passing


def test_the_gate_draws_a_hundred_and_passes(search: Any) -> None:
    made = search()
    assert made.facts["examples"] == 0, "it has not begun"
    made.run(good, None, NUMBERS)
    facts = _facts(made)
    assert (facts["examples"], facts["excused"], facts["failures"]) == (100, {}, [])
    assert 0 < facts["refused"] < 50
    # What travels between the processes of a session is made of nothing else.
    assert json.loads(json.dumps(made.facts)) == made.facts


def test_a_search_by_time_draws_on(search: Any) -> None:
    made = search(seconds=2.0)
    made.run(good, None, NUMBERS)
    assert made.facts["seconds"] >= 2.0
    assert made.facts["examples"] > 100


def test_the_gate_is_the_same_each_time(search: Any) -> None:
    issue = _issue()
    first, second = search(issue), search(issue)
    for made in (first, second):
        made.run(breaks_odd, None, NUMBERS)
    assert _facts(first) == _facts(second)
    assert first.facts["excused"]["M1"] > 10


def test_it_leaves_no_process(search: Any) -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = children.read_text()
    search().run(good, None, NUMBERS)
    _failed(search(), breaks_odd)
    assert children.read_text() == before


# What is known


def test_what_is_known_is_counted_and_passes(search: Any) -> None:
    made = search(_issue(traits=("odd",), failure="wrong *"))
    made.run(breaks_odd, None, NUMBERS)
    facts = _facts(made)
    assert (facts["examples"], facts["failures"]) == (100, [])
    assert list(facts["excused"]) == ["M1"]
    assert 10 < facts["excused"]["M1"] < 90


@pytest.mark.parametrize(
    "change",
    [
        {"applies": "mine>=2"},
        {"applies": "yours<2"},
        {"check": "other/*"},
        {"traits": ("even",)},
        {"failure": "died *"},
    ],
    ids=lambda change: next(iter(change)) + "-" + str(next(iter(change.values()))[0]),
)
def test_what_is_known_of_others_is_a_failure(search: Any, change: dict[str, Any]) -> None:
    made = search(_issue(**change))
    told = _failed(made, breaks_odd)
    assert "wrong parity: 1 is odd" in told
    assert made.facts["excused"] == {}


def test_an_example_that_fails_in_a_new_way_too_is_a_failure(search: Any) -> None:
    made = search(_issue(failure="wrong"))
    told = _failed(made, breaks_all_and_large)
    assert told.splitlines()[0].endswith(" examples: large")
    assert "large: 501 is large" in told
    assert made.facts["excused"]["M1"] > 50


# Failing


def test_a_failure_is_told_with_code(search: Any, tmp_path: Path) -> None:
    made = search()
    first, _, second, _, *code = _failed(made, breaks_odd).splitlines()
    assert first == f"a failure in {made.facts['examples']} examples: wrong parity"
    assert second == "wrong parity: 1 is odd"
    assert [line[:4].strip() for line in code if line] == [""] * len([line for line in code if line]), "indented"
    assert "    example = Number(value=1)" in code
    assert code[-1] == (
        "        properties.breaks_odd(formats.resolve('tests.faulty.formats:LosesOffsets'), example, tmp_path)"
    )
    assert made.facts["failures"] == ["wrong parity"]
    assert list(tmp_path.rglob("*.py")) == [], "a gate writes no files"


def test_each_failure_is_told(search: Any) -> None:
    made = search()
    told = _failed(made, breaks_twice)
    assert told.startswith(f"2 distinct failures in {made.facts['examples']} examples: ")
    assert "wrong parity: 1 is odd" in told
    assert "wrong size: 501 is large" in told
    assert told.count("example = Number(value=") == 2
    assert sorted(made.facts["failures"]) == ["wrong parity", "wrong size"]


def test_a_fixtures_subject_is_taken_from_the_fixture(search: Any) -> None:
    told = _failed(search(subject=Subject("format", "mine", "1.5", "conftest.py")), breaks_odd)
    assert "def test_area_slug(tensorizer_formats, tmp_path):" in told
    assert "resolve" not in told


def test_a_finding_becomes_a_file_that_reproduces_it(search: Any, tmp_path: Path) -> None:
    format = formats.resolve(SUBJECT.target)
    root = tmp_path / "root"
    root.mkdir()
    made = search(root=root)
    told = _failed(made, properties.round_trip, examples.state_dicts(format), format)
    (path,) = [path for path in root.rglob("*") if path.is_file()]
    assert path.parent == root / "tensorizer-findings"
    assert path.name.startswith("area_slug_mine_")
    assert f"To reproduce it: python -m pytest tensorizer-findings/{path.name}\n" in told
    text = path.read_text(encoding="utf-8")
    assert "area/slug, mine 1.5: wrong bits" in text
    namespace: dict[str, Any] = {}
    exec(compile(text, str(path), "exec"), namespace)
    (tmp_path / "empty").mkdir()
    with pytest.raises(Violation) as caught:
        namespace["test_area_slug"](tmp_path / "empty")
    assert list(caught.value.faults) == ["wrong bits"]
    # What is shown is the test that stands in the file.
    assert "\n".join(line.removeprefix("    ") for line in told.splitlines()).endswith(
        text.split('"""\n\n')[-1].rstrip()
    )


def test_the_same_finding_is_the_same_file(search: Any, tmp_path: Path) -> None:
    for _ in range(2):
        _failed(search(root=tmp_path), breaks_odd)
    assert len([*(tmp_path / "tensorizer-findings").iterdir()]) == 1


def test_a_finding_that_cannot_be_written_is_told(search: Any, tmp_path: Path) -> None:
    (tmp_path / "tensorizer-findings").write_text("in the way")
    told = _failed(search(root=tmp_path), breaks_odd)
    assert "The file that reproduces it could not be written: " in told
    assert "To reproduce it" not in told
    assert "    example = Number(value=1)" in told
    assert (tmp_path / "tensorizer-findings").read_text() == "in the way"


def test_what_ends_its_process_is_a_failure(search: Any) -> None:
    def dies(tested: object, example: Number, directory: Path) -> str:
        if example.value > 500:
            os.abort()
        return ""

    made = search()
    told = _failed(made, dies)
    assert "died of SIGABRT in test_search.py:dies" in told.splitlines()[0]
    assert "    example = Number(value=501)" in told
    assert '    @pytest.mark.fresh_process(timeout=10, memory_limit="1GiB")' in told


def test_what_takes_more_memory_than_the_limit_that_is_told_is_a_failure(search: Any) -> None:
    def allocates(tested: object, example: Number, directory: Path) -> str:
        if example.value > 500:
            bytearray(3 << 29)
        return ""

    told = _failed(search(), allocates)
    assert "ran out of memory" in told.splitlines()[0]
    assert "    example = Number(value=501)" in told
    assert 'memory_limit="1GiB"' in told


# On the way


def test_what_is_sent_is_made_an_example_again(search: Any) -> None:
    def rule(tested: object, example: object, directory: Path) -> str:
        assert (tested, type(example)) == ("subject", Number)
        return "" if [*directory.iterdir()] == [] else "not empty"

    made = search()
    made.run(
        rule, "subject", NUMBERS, sends=lambda example: str(example.value), receives=lambda sent: Number(int(sent))
    )
    assert (made.facts["examples"], made.facts["refused"]) == (100, 0)


def test_how_far_it_is_can_be_read_by_others(search: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "told"
    told.mkdir()
    monkeypatch.setenv(progress.VARIABLE, str(told))
    made = search()
    _failed(made, breaks_odd)
    assert progress.read(told) == [{**made.facts, "files": {}, "name": "area/slug@format:mine"}]


# A good file


def test_a_file_is_made_in_another_process(search: Any) -> None:
    def make(directory: Path) -> bytes:
        assert [*directory.iterdir()] == []
        return str(os.getpid()).encode()

    assert 0 < int(search().aside(make)) != os.getpid()


def test_a_file_that_cannot_be_made_fails_the_check(search: Any) -> None:
    def raises(directory: Path) -> bytes:
        raise KeyError("weight")

    def dies(directory: Path) -> bytes:
        os.abort()

    with pytest.raises(pytest.fail.Exception, match=r"^the good file cannot be made: KeyError: 'weight'"):
        search().aside(raises)
    with pytest.raises(
        pytest.fail.Exception, match=r"^the good file cannot be made: the process died of SIGABRT"
    ) as caught:
        search().aside(dies)
    assert "in dies" in str(caught.value), "its stacks are there"
