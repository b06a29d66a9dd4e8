"""The search: what it finds is minimal, distinct and new; it ends in time, and a second one begins where it ended."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import InMemoryExampleDatabase

from pytest_tensorizer.fuzz import search as module
from pytest_tensorizer.fuzz.outcome import Violation
from pytest_tensorizer.fuzz.search import Finding, Search, Tally
from pytest_tensorizer.fuzz.worker import Rule, Worker
from tests.fuzz.subjects import Number, numbers

STEADY = settings(
    max_examples=300, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
RANDOM = settings(STEADY, derandomize=False)

Start = Callable[..., Search]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Makes a search, with a worker that is closed at the end."""
    workers: list[Worker] = []

    def make(rule: Rule, *, profile: settings = STEADY, seconds: float | None = None, **options: Any) -> Search:
        workers.append(Worker(rule, directory=tmp_path, timeout=30.0))
        return Search(workers[-1], name="area/check[subject]", profile=profile, seconds=seconds, **options)

    yield make
    for worker in workers:
        worker.close()


def healthy(example: Number, directory: Path) -> str:
    return "too large" if example.value > 5000 else ""


def two_faults(example: Number, directory: Path) -> str:
    if example.value >= 1000:
        raise ValueError(f"{example.value} is too large")
    if example.value >= 17:
        raise KeyError(example.value)
    return ""


def both_at_once(example: Number, directory: Path) -> str:
    faults = {}
    if example.value >= 40:
        faults["wrong bits"] = f"bits of {example.value}"
    if example.value >= 60:
        faults["wrong dtype"] = f"dtype of {example.value}"
    if faults:
        raise Violation(faults)
    return ""


def small(tally: Tally) -> dict[str, int]:
    """Fault -> the number that it was found with, of those that are as simple as can be."""
    return {fault: finding.example.value for fault, finding in tally.findings.items() if finding.is_small}


def test_a_healthy_subject_has_no_findings(start: Start) -> None:
    tally = start(healthy).run(numbers())
    assert (tally.findings, tally.excused) == ({}, Counter())
    assert tally.examples == STEADY.max_examples
    assert 0 < tally.refused < tally.examples


def test_a_finding_is_minimal(start: Start) -> None:
    tally = start(two_faults).run(numbers(most=999))
    (finding,) = tally.findings.values()
    assert finding.is_small
    assert (finding.fault, finding.example) == ("raised KeyError in test_search.py:two_faults", Number(17))
    assert finding.message == "KeyError: 17"
    assert finding.outcome.faults == {finding.fault: finding.message}


@pytest.mark.parametrize("seconds", [None, 2.0])
def test_distinct_faults_are_all_found_and_each_is_minimal(start: Start, seconds: float | None) -> None:
    tally = start(two_faults, seconds=seconds).run(numbers())
    assert small(tally) == {
        "raised KeyError in test_search.py:two_faults": 17,
        "raised ValueError in test_search.py:two_faults": 1000,
    }


def test_an_example_with_two_faults_is_minimal_for_each(start: Start) -> None:
    tally = start(both_at_once).run(numbers())
    assert small(tally) == {"wrong bits": 40, "wrong dtype": 60}
    assert tally.findings["wrong dtype"].message == "dtype of 60"


def test_a_crash_is_made_small_too(start: Start) -> None:
    def dies(example: Number, directory: Path) -> str:
        if example.value >= 300:
            os._exit(3)
        return ""

    tally = start(dies, profile=settings(STEADY, max_examples=50)).run(numbers())
    assert small(tally) == {"ended with exit status 3": 300}
    assert tally.findings["ended with exit status 3"].outcome.ended_the_process


def test_a_search_without_an_end_stops_after_so_many_rounds(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROUNDS", 3)

    def many(example: Number, directory: Path) -> str:
        raise Violation({f"wrong {example.value % 10}": "each digit by itself"})

    tally = start(many).run(numbers())
    assert len(small(tally)) == 3
    assert sum(not finding.is_small for finding in tally.findings.values()) > 0, "met on the way, and kept as they were"


# What is known


def test_what_is_excused_is_counted_and_not_reported(start: Start) -> None:
    asked: set[tuple[frozenset[str], str]] = set()

    def excuse(traits: frozenset[str], fault: str) -> str:
        asked.add((traits, fault))
        return "K1" if "KeyError" in fault else ""

    told: list[Finding | None] = []
    search = start(two_faults, excuse=excuse, report=lambda tally, finding: told.append(finding))
    tally = search.run(numbers())
    fault = "raised ValueError in test_search.py:two_faults"
    assert small(tally) == {fault: 1000}
    assert list(tally.findings) == [fault]
    assert {finding.fault for finding in told if finding} == {fault}
    assert list(tally.excused) == ["K1"]
    assert 0 < tally.excused["K1"] < tally.examples
    assert asked == {
        (frozenset({word}), f"raised {name} in test_search.py:two_faults")
        for word in ("even", "odd")
        for name in ("KeyError", "ValueError")
    }


def test_an_issue_excuses_only_the_examples_that_it_speaks_of(start: Start) -> None:
    def odd(example: Number, directory: Path) -> str:
        if example.value >= 20:
            raise ValueError(example.value)
        return ""

    search = start(odd, excuse=lambda traits, fault: "K1" if "even" in traits else "")
    tally = search.run(numbers())
    assert small(tally) == {"raised ValueError in test_search.py:odd": 21}
    assert tally.excused["K1"] > 0


def test_one_fault_of_two_may_be_known(start: Start) -> None:
    search = start(both_at_once, excuse=lambda traits, fault: "K1" if fault == "wrong bits" else "")
    tally = search.run(numbers())
    assert small(tally) == {"wrong dtype": 60}
    assert list(tally.findings) == ["wrong dtype"]
    assert tally.excused["K1"] > 0


# Time


def test_seconds_are_an_end(start: Start) -> None:
    tally = start(healthy, profile=RANDOM, seconds=0.5).run(numbers())
    assert tally.examples > 0
    assert tally.seconds >= 0.5
    assert tally.findings == {}


def test_within_the_seconds_there_are_many_rounds(start: Start) -> None:
    tally = start(healthy, profile=settings(RANDOM, max_examples=5), seconds=0.5).run(numbers())
    assert tally.examples > 5


def test_what_there_was_no_time_to_make_small_is_kept_as_it_is(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SECONDS_TO_SHRINK", -1.0)
    tally = start(two_faults, profile=RANDOM).run(numbers(least=1000))
    (finding,) = tally.findings.values()
    assert finding.fault == "raised ValueError in test_search.py:two_faults"
    assert not finding.is_small
    assert finding.example.value >= 1000


def test_without_time_nothing_is_tried(start: Start) -> None:
    tally = start(two_faults, seconds=0.0, profile=RANDOM).run(numbers())
    assert (tally.examples, tally.findings) == (0, {})


# The database


def recording(tried: list[int], rule: Rule, directory: Path) -> Worker:
    """A worker that notes the numbers that it is given."""

    def sends(example: Number) -> Number:
        tried.append(example.value)
        return example

    return Worker(rule, directory=directory, timeout=30.0, sends=sends)


def test_a_failure_is_tried_again_first_by_the_next_search(tmp_path: Path) -> None:
    profile = settings(RANDOM, database=InMemoryExampleDatabase())
    found: list[dict[str, int]] = []
    tried: list[list[int]] = []
    for _ in range(2):
        numbers_tried: list[int] = []
        worker = recording(numbers_tried, two_faults, tmp_path)
        search = Search(worker, name="area/check[subject]", profile=profile, seconds=None)
        found.append(small(search.run(numbers())))
        tried.append(numbers_tried)
        worker.close()
    assert found[0] == found[1]
    assert set(found[0].values()) == {17, 1000}
    assert {17, 1000} <= set(tried[1][:10])
    assert not {17, 1000} <= set(tried[0][:10])


def test_what_the_database_has_and_is_mended_is_no_finding(start: Start) -> None:
    profile = settings(RANDOM, database=InMemoryExampleDatabase())
    assert len(start(two_faults, profile=profile).run(numbers()).findings) == 2
    assert start(healthy, profile=profile).run(numbers()).findings == {}


# Odd subjects


def test_a_fault_that_comes_and_goes_is_told(start: Start) -> None:
    tried: list[int] = []

    def flaky(example: Number, directory: Path) -> str:
        tried.append(example.value)
        if example.value > 10 and len(tried) % 2:
            raise ValueError(example.value)
        return ""

    tally = start(flaky, profile=settings(STEADY, max_examples=20)).run(numbers())
    (finding,) = tally.findings.values()
    assert finding.fault == "raised ValueError in test_search.py:flaky"
    assert finding.example.value > 10


def test_a_fault_that_comes_once_only_is_told(start: Start) -> None:
    seen: list[int] = []

    def once(example: Number, directory: Path) -> str:
        if not seen and example.value > 10:
            seen.append(example.value)
            raise ValueError(example.value)
        return ""

    tally = start(once).run(numbers())
    (finding,) = tally.findings.values()
    assert finding.example.value > 10
    assert finding.message == f"ValueError: {finding.example.value}"
    assert not finding.is_small


def test_a_rule_that_always_fails_is_told_with_the_simplest_example(start: Start) -> None:
    def never(example: Number, directory: Path) -> str:
        raise NotImplementedError

    assert small(start(never).run(numbers())) == {"raised NotImplementedError in test_search.py:never": 0}


# Reports


def test_the_same_examples_are_tried_in_each_run_of_a_steady_profile(tmp_path: Path) -> None:
    runs: list[list[int]] = []
    for rule in (healthy, two_faults, healthy, two_faults):
        tried: list[int] = []
        worker = recording(tried, rule, tmp_path)
        Search(worker, name="area/check[subject]", profile=STEADY, seconds=None).run(numbers())
        worker.close()
        runs.append(tried)
    assert runs[0] == runs[2]
    assert runs[1] == runs[3]
    assert len(set(runs[0])) > 100


def test_each_finding_is_reported_when_it_is_new_and_when_it_is_small(start: Start) -> None:
    told: list[tuple[str, bool, int]] = []

    def report(tally: Tally, finding: Finding | None) -> None:
        if finding is not None:
            assert tally.findings[finding.fault] is finding
            told.append((finding.fault, finding.is_small, finding.example.value))

    tally = start(two_faults, report=report).run(numbers())
    assert len(tally.findings) == 2
    for fault, finding in tally.findings.items():
        of_this = [(is_small, value) for found, is_small, value in told if found == fault]
        assert not of_this[0][0]
        assert of_this[-1] == (True, finding.example.value)


def test_the_last_report_has_all_that_was_tried(start: Start) -> None:
    told: list[dict[str, Any]] = []
    tally = start(healthy, report=lambda tally, finding: told.append(tally.facts)).run(numbers())
    assert told[-1] == tally.facts
    assert told[-1]["examples"] == STEADY.max_examples


def test_a_long_search_reports_now_and_then(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_REPORTS", -1.0)
    told: list[int] = []
    start(healthy, report=lambda tally, finding: told.append(tally.examples)).run(numbers())
    assert told == [*range(1, STEADY.max_examples + 1), STEADY.max_examples]


def test_facts_are_plain_values(start: Start) -> None:
    tally = start(both_at_once, excuse=lambda traits, fault: "K1" if "dtype" in fault else "").run(numbers())
    facts = tally.facts
    assert json.loads(json.dumps(facts)) == facts
    assert {name: type(value) for name, value in facts.items()} == {
        "examples": int,
        "refused": int,
        "seconds": float,
        "excused": dict,
        "failures": list,
    }
    assert facts["failures"] == ["wrong bits"]
    assert facts["excused"] == {"K1": tally.excused["K1"]}


def test_facts_of_nothing() -> None:
    assert Tally().facts == {"examples": 0, "refused": 0, "seconds": 0.0, "excused": {}, "failures": []}
