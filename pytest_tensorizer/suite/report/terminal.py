"""The header line, and the summary on one screen: what conforms, what does not, and the verdict last."""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pytest_tensorizer import devices
from pytest_tensorizer.options import OPTIONS, Settings
from pytest_tensorizer.resolve import distribution_version
from pytest_tensorizer.suite.known_issues import SEVERITIES
from pytest_tensorizer.suite.report.gather import Gatherer

if TYPE_CHECKING:
    from pytest_tensorizer.suite.run import SuiteRun

_OUTCOMES = ("failed", "error", "advice", "known", "passed", "skipped")
_MAX_WIDTH = 100
Line = tuple[str, str]
"""Text, and how to paint it: "", "red", "yellow", "green" or "bold"."""


def header(settings: Settings, overridden: frozenset[str]) -> list[str]:
    """What is about to be tested: names and versions, without an import of any of it."""

    def named(target: str, fixture: str) -> str:
        if fixture in overridden:
            return "(conftest.py)"
        version = distribution_version(target) if ":" not in target else "unknown"
        return target if version == "unknown" else f"{target} {version}"

    formats = ", ".join(dict.fromkeys(named(target, "tensorizer_formats") for target in settings.format))
    return [
        f"tensorizer: suite {distribution_version('pytest-tensorizer')} on {devices.choose(settings.device)}, "
        f"torch {distribution_version('torch')}",
        f"tensorizer: formats {formats}; engine {named(settings.engine, 'tensorizer_engine')}; "
        f"prompt embeds {named(settings.prompt_embeds, 'tensorizer_prompt_embeds_loader')}",
    ]


def write(reporter: Any, gathered: Gatherer, run: SuiteRun, exitstatus: int) -> None:
    """Write the summary through pytest's terminal reporter, which knows about colour and width."""
    width = min(reporter._tw.fullwidth, _MAX_WIDTH)
    reporter.section("tensorizer conformance", sep="=", bold=True)
    for text, paint in lines(gathered, run, exitstatus, width):
        reporter.write_line(text, **({paint: True} if paint else {}))


def lines(gathered: Gatherer, run: SuiteRun, exitstatus: int, width: int) -> Iterable[Line]:
    results = gathered.results()
    yield (
        f"suite {distribution_version('pytest-tensorizer')} on {devices.choose(run.settings.device)}, "
        f"torch {distribution_version('torch')}",
        "",
    )
    yield "", ""
    yield from _matrix(results, width)
    yield "", ""
    yield from _known(results, run, width)
    yield from _skipped(results, width)
    yield from _failures(results, run, width)
    yield "", ""
    yield from _verdict(gathered, exitstatus)


def _matrix(results: list[dict[str, Any]], width: int) -> Iterable[Line]:
    """Areas by subjects. Subjects that do not fit beside the others follow in another block."""
    areas = list(dict.fromkeys(result["area"] for result in results))
    subjects = list(dict.fromkeys((r["subject"], r["version"]) for r in results if r["subject"]))
    if not subjects:
        return
    first = max([len(area) for area in areas], default=0) + 2
    cells = {
        (area, subject): _cell([r for r in results if r["area"] == area and (r["subject"], r["version"]) == subject])
        for area in areas
        for subject in subjects
    }
    names = {subject: _split_subject(subject[0]) for subject in subjects}
    column = 2 + max(
        *(len(text) for text, _ in cells.values()), *(len(n) for _, n in names.values()), *(len(v) for _, v in subjects)
    )
    per_block = max(1, (width - first) // column)
    for start in range(0, len(subjects), per_block):
        block = subjects[start : start + per_block]
        if start:
            yield "", ""
        yield _row("", [names[subject][1] for subject in block], first, column), "bold"
        yield _row("", [version for _, version in block], first, column), ""
        for area in areas:
            row = [cells[area, subject] for subject in block]
            if any(text != "-" for text, _ in row):
                worst = next((paint for wanted in ("red", "yellow") for _, paint in row if paint == wanted), "")
                yield _row(area, [text for text, _ in row], first, column), worst


def _row(label: str, cells: list[str], first: int, column: int) -> str:
    return (label.ljust(first) + "".join(cell.ljust(column) for cell in cells)).rstrip()


def _cell(results: list[dict[str, Any]]) -> Line:
    counts = Counter(result["outcome"] for result in results)
    ran = sum(counts.values()) - counts["skipped"]
    failed = counts["failed"] + counts["error"]
    if not results:
        return "-", ""
    if failed:
        return f"{failed} FAILED of {ran}", "red"
    if counts["advice"]:
        return f"{counts['advice']} advice of {ran}", "yellow"
    if counts["known"]:
        return f"{counts['known']} known of {ran}", "yellow"
    return (str(ran), "green") if ran else ("skipped", "")


def _split_subject(subject: str) -> tuple[str, str]:
    kind, _, name = subject.partition(":")
    return kind, name


def _known(results: list[dict[str, Any]], run: SuiteRun, width: int) -> Iterable[Line]:
    counts = Counter(result["known_issue"] for result in results if result["outcome"] == "known")
    issues = sorted(
        (issue for issue in run.issues if issue.id in counts), key=lambda issue: SEVERITIES.index(issue.severity)
    )
    if not issues:
        return
    yield f"Known issues (--tensorizer-known-issues=off shows each as a failure): {len(issues)}", "bold"
    column = max(len(issue.id) for issue in issues)
    for issue in issues:
        label = f"  {issue.id.ljust(column)}  {issue.severity.ljust(7)}  "
        link = f" ({issue.link})" if issue.link else ""
        yield from _wrapped(label, f"{issue.applies}: {issue.reason}{link} [{counts[issue.id]}x]", width)
    yield "", ""


def _skipped(results: list[dict[str, Any]], width: int) -> Iterable[Line]:
    skipped = [result for result in results if result["outcome"] == "skipped"]
    if not skipped:
        return
    parts = []
    unclaimed = sum(result.get("skip") == "capability" for result in skipped)
    if unclaimed:
        parts.append(f"{unclaimed} not claimed by the subject")
    for name, count in Counter(r["missing"] for r in skipped if r.get("skip") == "requirement").items():
        parts.append(f"{count} for want of {name} (--tensorizer-require={name} makes them fail)")
    others = sum(result.get("skip") == "other" for result in skipped)
    if others:
        parts.append(f"{others} by a mark or a skip of their own")
    yield from _wrapped("Skipped: ", ", ".join(parts), width)


def _failures(results: list[dict[str, Any]], run: SuiteRun, width: int) -> Iterable[Line]:
    for word, outcomes, paint in (("ADVICE", ("advice",), "yellow"), ("FAILS", ("failed", "error"), "red")):
        grouped: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for result in results:
            if result["outcome"] in outcomes:
                grouped.setdefault((result["check"], result["subject"]), []).append(result)
        for (check, subject), cases in grouped.items():
            yield "", ""
            case = f"[{cases[0]['case']}]" if cases[0]["case"] else ""
            more = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
            yield f"{word}  {check}  {_split_subject(subject)[1]}  {case}{more}".rstrip(), paint
            yield from _wrapped("       ", cases[0]["message"], width)
            # One line, not wrapped: it is there to be pasted.
            yield f"       {rerun(cases[0]['nodeid'], run)}", ""


def rerun(nodeid: str, run: SuiteRun) -> str:
    """The command that runs one check again, with the subjects that it was run with."""
    arguments = ["pytest", "--tensorizer-conformance"]
    for option in OPTIONS:
        value = getattr(run.settings, option.name.replace("-", "_"))
        if option.name not in run.settings.explicit or option.name == "conformance":
            continue
        for one in value if option.kind == "args" else [value]:
            arguments.append(option.flag if option.kind == "bool" else f"{option.flag}={one}")
    return " ".join([*map(shlex.quote, arguments), shlex.quote(nodeid)])


def _wrapped(label: str, text: str, width: int) -> Iterable[Line]:
    indent = " " * len(label)
    for line in textwrap.wrap(text, max(width, len(label) + 20), initial_indent=label, subsequent_indent=indent):
        yield line, ""


def _verdict(gathered: Gatherer, exitstatus: int) -> Iterable[Line]:
    counts = {outcome: gathered.count(outcome) for outcome in _OUTCOMES}
    yield ", ".join(f"{counts[o]} {o}" for o in _OUTCOMES if counts[o] or o == "passed"), ""
    failing = counts["failed"] + counts["error"]
    unheard = len(gathered.unheard())
    if failing:
        yield f"NOT PASSED: {failing} REQUIRED CHECK{'S' if failing > 1 else ''} FAIL{'' if failing > 1 else 'S'}", "red"
    elif unheard or gathered.deselected or not counts["passed"] + counts["known"]:
        parts = [f"{unheard} not run"] if unheard else []
        parts += [f"{gathered.deselected} deselected"] if gathered.deselected else []
        yield f"INCOMPLETE: {', '.join(parts) or 'no check ran'}; what ran has passed", "yellow"
    elif exitstatus:
        yield f"NOT PASSED: pytest ended with exit status {exitstatus}", "red"
    else:
        yield "PASSED: EVERY REQUIRED CHECK PASSES" + (" OR IS A KNOWN ISSUE" if counts["known"] else ""), "green"
