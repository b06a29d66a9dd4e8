"""Known issues: checks that a version range of a subject is known to fail. Strict: one that passes is a failure."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_tensorizer.suite.check import Check

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from pytest_tensorizer.suite.subjects import Subject

SEVERITIES = ("silent", "loss", "crash", "hang", "unclear", "info")
_REQUIRED = {"id", "applies", "reason", "severity"}
_OPTIONAL = {"checks", "fuzz", "link"}
_FUZZ = {"check", "traits", "failure"}


class RegistryError(ValueError):
    """A registry that cannot be read, or an entry that makes no sense; the message has file and line."""


@dataclass(frozen=True)
class Excuse:
    """Examples that a search is to find broken: of a check, with all of some traits, in a certain way; as globs."""

    check: str
    traits: tuple[str, ...]
    failure: str

    def covers(self, check: str, traits: frozenset[str], failure: str) -> bool:
        return (
            fnmatchcase(check, self.check)
            and fnmatchcase(failure, self.failure)
            and all(any(fnmatchcase(trait, wanted) for trait in traits) for wanted in self.traits)
        )


@dataclass(frozen=True)
class KnownIssue:
    """One entry. `checks` are globs over "area/slug[case]"; `applies` is a requirement such as "tensorizer<=2.12.1".

    `fuzz` says which of the examples that are drawn at random are examples of this. What is drawn is different in each
    run, so that these are not strict.
    """

    id: str
    checks: tuple[str, ...]
    applies: str
    reason: str
    severity: str
    link: str | None
    fuzz: tuple[Excuse, ...]
    source: str
    line: int

    @cached_property
    def requirement(self) -> Requirement:
        from packaging.requirements import Requirement

        return Requirement(self.applies)

    @property
    def where(self) -> str:
        return f"{self.source}, line {self.line}"

    def concerns(self, subject: Subject) -> bool:
        """Whether `subject` is one of the named version range."""
        from packaging.version import InvalidVersion

        if self.requirement.name != subject.name:
            return False
        try:
            return self.requirement.specifier.contains(subject.version, prereleases=True)
        except InvalidVersion:
            return not self.requirement.specifier

    def covers(self, check: Check) -> bool:
        """Whether one of the globs matches the check: a bare id stands for all its cases."""
        if check.subject.partition(":")[2] != self.requirement.name:
            return False
        name = f"{check.id}[{check.case}]" if check.case else check.id
        return any(glob in (check.id, name) or fnmatchcase(name, _literal_brackets(glob)) for glob in self.checks)

    def excuses(self, check: Check, traits: frozenset[str], failure: str) -> bool:
        """Whether an example with these traits is known to fail the check so."""
        return any(excuse.covers(check.id, traits, failure) for excuse in self.fuzz)


def _literal_brackets(glob: str) -> str:
    """In an id, brackets enclose the case; in fnmatch they would enclose a set of characters."""
    return glob.replace("[", "\0").replace("]", "[]]").replace("\0", "[[]")


def shipped() -> list[KnownIssue]:
    """The registry that comes with the suite."""
    text = resources.files("pytest_tensorizer.conformance").joinpath("known_issues.toml").read_text(encoding="utf-8")
    return parse(text, "known_issues.toml")


def read(path: Path) -> list[KnownIssue]:
    """A registry of the user's. Raises RegistryError where it cannot be read."""
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise RegistryError(f"known issues cannot be read from {str(path)!r}: {error}") from error


def parse(text: str, source: str) -> list[KnownIssue]:
    """The entries `[[issue]]` of a TOML text. Raises RegistryError that names source, line and entry."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        content: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RegistryError(f"{source} is not valid TOML: {error}") from error
    entries = content.pop("issue", [])
    lines = [number for number, line in enumerate(text.splitlines(), 1) if re.match(r"\s*\[\[\s*issue\s*\]\]", line)]
    if content or not isinstance(entries, list) or len(entries) != len(lines):
        trouble = f"has {next(iter(content))!r}, which means nothing" if content else "has an `issue` that is no table"
        raise RegistryError(f"{source} {trouble}: write each entry below a line [[issue]]")
    issues = [_issue(entry, source, line) for entry, line in zip(entries, lines, strict=True)]
    ids = [issue.id for issue in issues]
    for issue in issues:
        if ids.count(issue.id) > 1:
            raise RegistryError(f"{issue.where}: the id {issue.id!r} occurs twice")
    return issues


def _issue(entry: dict[str, Any], source: str, line: int) -> KnownIssue:
    from packaging.requirements import InvalidRequirement

    where = f"{source}, line {line}"
    lacking, unknown = sorted(_REQUIRED - entry.keys()), sorted(entry.keys() - _REQUIRED - _OPTIONAL)
    trouble = ""
    if lacking or unknown:
        trouble = f"lacks {lacking[0]!r}" if lacking else f"has an unknown key {unknown[0]!r}"
    elif "checks" not in entry and not entry.get("fuzz"):
        trouble = "lacks 'checks' or 'fuzz': what it is about"
    if trouble:
        raise RegistryError(f"{where}: the issue {entry.get('id', '(no id)')!r} {trouble}")
    for key, value in entry.items():
        if key == "checks" and not _are_texts(value):
            raise RegistryError(f"{where}: checks must be a list of texts, not {value!r}")
        if key not in ("checks", "fuzz") and not _are_texts([value]):
            raise RegistryError(f"{where}: {key} must be a text, not {value!r}")
    if entry["severity"] not in SEVERITIES:
        raise RegistryError(f"{where}: severity {entry['severity']!r} is none of {', '.join(SEVERITIES)}")
    found = {
        "link": None, **entry, "checks": tuple(entry.get("checks", ())), "fuzz": _excuses(entry.get("fuzz", []), where)
    }  # fmt: skip
    issue = KnownIssue(**found, source=source, line=line)
    try:
        issue.requirement  # noqa: B018 - parsed here, so that a bad one is told before any test
    except InvalidRequirement as error:
        raise RegistryError(f"{where}: applies = {issue.applies!r} is no version range: {error}") from error
    return issue


def _excuses(value: Any, where: str) -> tuple[Excuse, ...]:
    wanted = '`fuzz` must be a list of tables such as {check = "area/slug", traits = ["shared"], failure = "wrong *"}'
    if not isinstance(value, list):
        raise RegistryError(f"{where}: {wanted}, not {value!r}")
    found = []
    for table in value:
        is_right = (
            isinstance(table, dict) and {"check", "failure"} <= table.keys() <= _FUZZ
            and _are_texts([table["check"], table["failure"]]) and _are_texts(table.get("traits", ["*"]))
        )  # fmt: skip
        if not is_right:
            raise RegistryError(f"{where}: {wanted}, not with {table!r}")
        found.append(Excuse(table["check"], tuple(table.get("traits", ())), table["failure"]))
    return tuple(found)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(text, str) and text for text in value)
