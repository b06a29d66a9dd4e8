"""Known issues are expected of the versions that they name, and strict both ways."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pytest_tensorizer.suite.check import Check
from pytest_tensorizer.suite.known_issues import Excuse, KnownIssue, RegistryError, parse, read, shipped
from pytest_tensorizer.suite.subjects import Subject

ENTRY = """
# A comment.

[[issue]]
id = "L1"
checks = ["storage/write", "storage/read[local]"]
applies = "lossy<2"
severity = "loss"
reason = "The last tensor is lost."
link = "https://example.org/1"
"""
WRITE, READ, MISSING = (
    f"tensorizer-conformance/test_storage.py::test_{name}[lossy-local]" for name in ("write", "read", "missing")
)
LOSSY = "--tensorizer-format=mine:Lossy"


FUZZ = """
[[issue]]
id = "L2"
fuzz = [
    { check = "roundtrip/any-*", traits = ["empty", "dtype:*int[1-7]"], failure = "wrong *" },
    { check = "roundtrip/any-state-dict", failure = "raised KeyError in mine.py:load" },
]
applies = "lossy<2"
severity = "loss"
reason = "The last tensor is lost."
"""


def _issue(*checks: str, applies: str = "lossy<2", fuzz: tuple[Excuse, ...] = ()) -> KnownIssue:
    return KnownIssue("L1", checks, applies, "reason", "loss", None, fuzz, "issues.toml", 4)


# Reading


def test_parsing() -> None:
    (issue,) = parse(ENTRY, "issues.toml")
    assert (issue.id, issue.checks, issue.severity) == ("L1", ("storage/write", "storage/read[local]"), "loss")
    assert (issue.applies, issue.link) == ("lossy<2", "https://example.org/1")
    assert issue.where == "issues.toml, line 4"
    assert parse(ENTRY.replace("link", "# link"), "issues.toml")[0].link is None
    assert parse("", "issues.toml") == []
    assert issue.fuzz == ()


def test_parsing_what_a_search_is_to_find() -> None:
    (issue,) = parse(FUZZ, "issues.toml")
    assert issue.checks == ()
    assert issue.fuzz == (
        Excuse("roundtrip/any-*", ("empty", "dtype:*int[1-7]"), "wrong *"),
        Excuse("roundtrip/any-state-dict", (), "raised KeyError in mine.py:load"),
    )
    (both,) = parse(FUZZ.replace("fuzz =", 'checks = ["storage/write"]\nfuzz ='), "issues.toml")
    assert (both.checks, both.fuzz) == (("storage/write",), issue.fuzz)


def test_the_shipped_registry_is_sound() -> None:
    issues = shipped()
    assert issues
    assert len({issue.id for issue in issues}) == len(issues)
    # "<=": a later version of a subject is to be looked at anew.
    assert all("<" in issue.applies for issue in issues)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("lossy<2", "lossy<<2"), r"issues.toml, line 4: applies = 'lossy<<2' is no version range"),
        (('"loss"', '"bad"'), r"issues.toml, line 4: severity 'bad' is none of silent, loss"),
        (("reason", "why"), r"issues.toml, line 4: the issue 'L1' lacks 'reason'"),
        (("link", "url"), r"issues.toml, line 4: the issue 'L1' has an unknown key 'url'"),
        (('["storage/write", "storage/read[local]"]', '"storage/write"'), r"line 4: checks must be a list of texts"),
        (('["storage/write", "storage/read[local]"]', "[]"), r"line 4: checks must be a list of texts"),
        (('["storage/write", "storage/read[local]"]', "[3]"), r"line 4: checks must be a list of texts"),
        (('"L1"', "1"), r"issues.toml, line 4: id must be a text, not 1"),
        (('"lossy<2"', "2"), r"issues.toml, line 4: applies must be a text"),
        (('"L1"', "L1"), r"issues.toml is not valid TOML: .*line 5"),
        (
            ("[[issue]]", "[issue]"),
            r"issues.toml has an `issue` that is no table: write each entry below .*\[\[issue\]\]",
        ),
        (("[[issue]]", "[[issues]]"), r"issues.toml has 'issues', which means nothing"),
        (("[[issue]]", "strict = true\n[[issue]]"), r"issues.toml has 'strict', which means nothing"),
    ],
)
def test_errors_name_file_and_line(change: tuple[str, str], message: str) -> None:
    assert change[0] in ENTRY
    with pytest.raises(RegistryError, match=message):
        parse(ENTRY.replace(*change, 1), "issues.toml")


RIGHT = '{ check = "a/b", traits = ["c"], failure = "d" }'


@pytest.mark.parametrize(
    ("fuzz", "told"),
    [
        ('"roundtrip/*"', ", not 'roundtrip/*'"),
        ("true", ", not True"),
        ("{}", ", not {}"),
        ("3", ", not 3"),
        ('["roundtrip/any-state-dict"]', ", not with 'roundtrip/any-state-dict'"),
        ("[{}]", ", not with {}"),
        (f'[{RIGHT}, {{ traits = ["c"], failure = "wrong bits" }}]', ", not with {'traits': ['c'], 'failure'"),
        (f'[{RIGHT}, {{ check = "e", traits = ["c"] }}]', ", not with {'check': 'e', 'traits': ['c']}"),
        (
            f'[{{ check = "e", failure = "f", trait = ["c"] }}, {RIGHT}]',
            ", not with {'check': 'e', 'failure': 'f', 'tr",
        ),
        ('[{ check = "e", failure = "f", traits = [] }]', ", not with {'check': 'e', 'failure': 'f', 'traits': []}"),
        ('[{ check = "e", failure = "f", traits = "empty" }]', "'traits': 'empty'}"),
        ('[{ check = "e", failure = "f", traits = [""] }]', "'traits': ['']}"),
        ('[{ check = "e", failure = "f", traits = [1] }]', "'traits': [1]}"),
        ('[{ check = "", failure = "f" }]', ", not with {'check': ''"),
        ('[{ check = ["e"], failure = "f" }]', ", not with {'check': ['e']"),
        ('[{ check = "e", failure = 1 }]', "'failure': 1}"),
    ],
)
def test_errors_in_what_a_search_is_to_find(fuzz: str, told: str) -> None:
    text = ENTRY.replace("link = ", f"fuzz = {fuzz}\nlink = ")
    with pytest.raises(RegistryError) as caught:
        parse(text, "issues.toml")
    # The message shows what is right, and what is there.
    assert str(caught.value).startswith("issues.toml, line 4: `fuzz` must be a list of tables such as {check = ")
    assert told in str(caught.value)


def test_an_entry_is_about_something() -> None:
    for nothing in ("", "fuzz = []\n"):
        with pytest.raises(RegistryError, match="line 4: the issue 'L1' lacks 'checks' or 'fuzz'"):
            parse(re.sub("checks = .*\n", nothing, ENTRY), "issues.toml")


def test_an_id_occurs_once() -> None:
    with pytest.raises(RegistryError, match="line 4: the id 'L1' occurs twice"):
        parse(ENTRY + ENTRY, "issues.toml")


def test_a_file_that_cannot_be_read(tmp_path: Any) -> None:
    with pytest.raises(RegistryError, match=r"nowhere.toml"):
        read(tmp_path / "nowhere.toml")
    (tmp_path / "latin.toml").write_bytes("# ü".encode("latin-1"))
    with pytest.raises(RegistryError, match=r"latin.toml"):
        read(tmp_path / "latin.toml")


# What an entry is about


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("roundtrip/bits", True),  # a bare id stands for all its cases
        ("roundtrip/bits[float32-empty-offset]", True),
        ("roundtrip/bits[float32-*]", True),
        ("roundtrip/bits[*-empty-*]", True),
        ("roundtrip/*", True),
        ("*", True),
        ("roundtrip/bit", False),
        ("roundtrip/bits[float32]", False),
        ("roundtrip/bits[float3-*]", False),
        ("roundtrip/bits[[a-z]*]", False),
        ("roundtrip/bytes*", False),
        ("storage/*", False),
    ],
)
def test_globs(glob: str, expected: bool) -> None:
    check = Check("roundtrip/bits", "must", "format:lossy", "float32-empty-offset")
    assert _issue(glob).covers(check) is expected
    assert _issue("storage/nothing", glob).covers(check) is expected
    assert not _issue(glob).covers(Check("roundtrip/bits", "must", "format:other", "float32-empty-offset"))


def test_a_check_without_cases() -> None:
    check = Check("modules/ties", "must", "format:lossy", "")
    assert _issue("modules/ties").covers(check)
    assert not _issue("modules/ties[*]").covers(check)


@pytest.mark.parametrize(
    ("applies", "version", "expected"),
    [
        ("lossy<2", "1.5", True),
        ("lossy<2", "2.0", False),
        ("lossy<=1.5", "1.5", True),
        ("lossy<2", "1.9.dev1+local", True),
        ("lossy<2", "2.0rc1", False),
        ("lossy", "anything", True),
        ("lossy<2", "unknown", False),
        ("other<2", "1.5", False),
    ],
)
def test_versions(applies: str, version: str, expected: bool) -> None:
    assert _issue("*", applies=applies).concerns(Subject("format", "lossy", version, "")) is expected


@pytest.mark.parametrize(
    ("excuse", "expected"),
    [
        (Excuse("roundtrip/any-state-dict", (), "wrong bits"), True),
        (Excuse("*", (), "*"), True),
        (Excuse("*/any-*", ("empty",), "wrong *"), True),
        (Excuse("*/any-*", ("empty", "dtype:*int[1-7]"), "wrong *"), True),
        (Excuse("*", ("dtype:*",), "*"), True),
        # All of the traits, of which the example may have more.
        (Excuse("*", ("empty", "shared"), "*"), False),
        (Excuse("*", ("empt",), "*"), False),
        (Excuse("*", ("EMPTY",), "*"), False),
        (Excuse("*", ("dtype:*float[1-7]",), "*"), False),
        # The whole of each, so that an entry does not take in what is called alike.
        (Excuse("roundtrip/any", (), "*"), False),
        (Excuse("any-state-dict", (), "*"), False),
        (Excuse("*", (), "wrong"), False),
        (Excuse("*", (), "bits"), False),
        (Excuse("modules/any-module", (), "wrong bits"), False),
    ],
)
def test_what_is_excused(excuse: Excuse, expected: bool) -> None:
    check = Check("roundtrip/any-state-dict", "must", "format:lossy", "")
    traits = frozenset({"empty", "offset", "dtype:uint3"})
    other = Excuse("roundtrip/nothing", (), "*")
    assert _issue(fuzz=(excuse,)).excuses(check, traits, "wrong bits") is expected
    assert _issue(fuzz=(other, excuse)).excuses(check, traits, "wrong bits") is expected
    # Not by what the same entry says of other checks, nor an example without any trait.
    assert not _issue("*", fuzz=(other,)).excuses(check, traits, "wrong bits")
    assert _issue(fuzz=(excuse,)).excuses(check, frozenset(), "wrong bits") is (expected and not excuse.traits)


def test_what_a_search_is_to_find_is_expected_of_no_other_check() -> None:
    (issue,) = parse(FUZZ, "issues.toml")
    assert not issue.covers(Check("roundtrip/any-state-dict", "must", "format:lossy", ""))
    assert issue.excuses(
        Check("roundtrip/any-state-dict", "must", "format:lossy", ""), frozenset(), "raised KeyError in mine.py:load"
    )


# In a run


def test_an_expected_failure_is_known(repository: Any) -> None:
    path = repository.write("notes/issues.toml", ENTRY)
    run = repository.run(LOSSY, "--tensorizer-known-issues=notes/issues.toml", WRITE, READ, MISSING)
    assert run.status == 0
    assert run.outcomes == {"xfailed": 2, "passed": 1}
    assert "L1  loss     lossy<2: The last tensor is lost. [2x]" in run.summary
    assert "https://example.org/1" in run.summary
    assert "PASSED: EVERY REQUIRED CHECK PASSES OR IS A KNOWN ISSUE" in run.summary
    # In an ini file, a path is seen from there.
    repository.write("pytest.ini", "[pytest]\ntensorizer_known_issues = notes/issues.toml\n")
    repository.pytester.syspathinsert(repository.path)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path.parent)
        assert repository.run(LOSSY, WRITE, READ).outcomes == {"xfailed": 2}


def test_known_issues_that_do_not_apply(repository: Any) -> None:
    """Of another version, and with `off`, a known issue is the failure that it is."""
    repository.write("issues.toml", ENTRY.replace("lossy<2", "lossy<1.5"))
    run = repository.run(LOSSY, "--tensorizer-known-issues=issues.toml", WRITE)
    assert run.outcomes == {"failed": 1}
    assert "NOT PASSED: 1 REQUIRED CHECK FAILS" in run.summary

    ties = ["--tensorizer-format=tensorizer", "tensorizer-conformance/test_modules.py::test_ties"]
    run = repository.run(*ties)
    assert run.outcomes == {"xfailed": 1}, run.out
    assert "T22" in run.summary
    run = repository.run(*ties, "--tensorizer-known-issues=off")
    assert run.outcomes == {"failed": 1}
    assert "FAILS   modules/ties  tensorizer" in run.summary


def test_a_known_issue_that_passes_is_a_failure(repository: Any) -> None:
    path = repository.write("issues.toml", ENTRY.replace("storage/write", "storage/missing"))
    run = repository.run(LOSSY, "--tensorizer-known-issues=issues.toml", MISSING, READ, WRITE)
    assert run.outcomes == {"failed": 2, "xfailed": 1}
    told = " ".join(run.summary.split())
    assert "[stale] known issue L1 says that this fails with lossy<2, and it passed: remove the entry" in told
    assert ", line 4, narrow its version range" in told
    assert f"{path}, line 4" in run.out  # in pytest's own report, unwrapped
    assert "NOT PASSED: 2 REQUIRED CHECKS FAIL" in run.summary


def test_an_entry_that_matches_nothing_is_a_failure(repository: Any) -> None:
    """As soon as all checks of its subject are there; a part of the suite tells nothing about the rest."""
    repository.write("issues.toml", ENTRY.replace('["storage/write", "storage/read[local]"]', '["storage/rite"]'))
    arguments = [LOSSY, "--tensorizer-known-issues=issues.toml"]
    assert repository.run(*arguments, MISSING).outcomes == {"passed": 1}
    entry = "tensorizer-conformance/known_issues.toml::L1"
    run = repository.run(*arguments, entry)
    assert run.outcomes == {"failed": 1}
    assert "known issue L1 matches no check: remove the entry at" in " ".join(run.summary.split())
    assert f"pytest --tensorizer-conformance {LOSSY} --tensorizer-known-issues=issues.toml {entry}" in run.summary
    assert entry in repository.run(*arguments, "--co", "-q").out
    # Nor is it one where nothing of that name, or of that version, is tested.
    assert entry not in repository.run("--tensorizer-format=mine:Mine", *arguments[1:], "--co", "-q").out


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (ENTRY.replace('"loss"', '"bad"'), ("issues.toml, line 4", "'bad'")),
        ("[[issue]\n", ("issues.toml is not valid TOML", "line 1")),
        (None, ("issues.toml", "No such file")),
    ],
)
def test_a_malformed_file_is_a_usage_error(repository: Any, content: str | None, words: tuple[str, ...]) -> None:
    if content is not None:
        repository.write("issues.toml", content)
    run = repository.run(LOSSY, "--tensorizer-known-issues=issues.toml", WRITE)
    run.assert_refused("--tensorizer-known-issues", *words)
