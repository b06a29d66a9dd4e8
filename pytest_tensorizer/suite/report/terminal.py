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
from pytest_tensorizer.suite.check import KINDS
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
        f"tensorizer: {_machine(settings)}",
        f"tensorizer: formats {formats}",
        f"tensorizer: engine {named(settings.engine, 'tensorizer_engine')}, "
        f"prompt embeds {named(settings.prompt_embeds, 'tensorizer_prompt_embeds_loader')}",
    ]


def _machine(settings: Settings) -> str:
    return (
        f"suite {distribution_version('pytest-tensorizer')} on {devices.choose(settings.device)}, "
        f"torch {distribution_version('torch')}"
    )


def write(reporter: Any, gathered: Gatherer, run: SuiteRun, exitstatus: int) -> None:
    """Write the summary through pytest's terminal reporter, which knows about colour and width."""
    width = min(reporter._tw.fullwidth, _MAX_WIDTH)
    reporter.section("tensorizer conformance", sep="=", bold=True)
    for text, paint in lines(gathered, run, exitstatus, width):
        reporter.write_line(text, **({paint: True} if paint else {}))


def lines(gathered: Gatherer, run: SuiteRun, exitstatus: int, width: int) -> Iterable[Line]:
    """The summary. No line is wider than `width`, but for the commands that are there to be pasted."""
    results = gathered.results()
    yield _machine(run.settings), ""
    for block in (
        _matrix(results, width),
        _known(results, run, width),
        _searched(results, width),
        _skipped(results, width),
        _failures(results, run, width),
        _verdict(gathered, run, exitstatus, width),
    ):
        content = list(block)
        if content:
            yield "", ""
        yield from content


def _matrix(results: list[dict[str, Any]], width: int) -> Iterable[Line]:
    """Areas by subjects. Subjects that do not fit beside the others follow in another block."""
    areas = sorted({result["area"] for result in results})
    subjects = sorted({(r["subject"], r["version"]) for r in results if r["subject"]}, key=_subject_order)
    if not subjects:
        return
    first = max(map(len, areas)) + 2
    columns: list[list[Line]] = []
    for subject, version in subjects:
        mine = [r for r in results if (r["subject"], r["version"]) == (subject, version)]
        head = [_shortened(text, width - first - 2) for text in (subject.partition(":")[2], version)]
        cells = [_cell([r for r in mine if r["area"] == area]) for area in areas]
        columns.append([(head[0], "bold"), (head[1], ""), *cells])
    for number, block in enumerate(_blocks(columns, width - first)):
        if number:
            yield "", ""
        for label, row in zip(["", "", *areas], zip(*block, strict=True), strict=True):
            if any(text != "-" for text, _ in row):
                yield _row(label, row, block, first)


def _subject_order(subject: tuple[str, str]) -> tuple[int, bool, str]:
    """Formats, engine, loader; of the formats tensorizer first, since the others are measured beside it."""
    kind, _, name = subject[0].partition(":")
    return KINDS.index(kind), name != "tensorizer", name


def _blocks(columns: list[list[Line]], width: int) -> Iterable[list[list[Line]]]:
    """The columns, as many side by side as `width` holds."""
    block: list[list[Line]] = []
    for column in columns:
        if block and sum(map(_column_width, [*block, column])) - 2 > width:
            yield block
            block = []
        block.append(column)
    yield block


def _column_width(column: list[Line]) -> int:
    return max(len(text) for text, _ in column) + 2


def _row(label: str, row: tuple[Line, ...], block: list[list[Line]], first: int) -> Line:
    cells = "".join(text.ljust(_column_width(column)) for (text, _), column in zip(row, block, strict=True))
    worst = next((paint for wanted in ("red", "yellow", "bold") for _, paint in row if paint == wanted), "")
    return (label.ljust(first) + cells).rstrip(), worst


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


def _shortened(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 2]}.."


def _known(results: list[dict[str, Any]], run: SuiteRun, width: int) -> Iterable[Line]:
    counts = Counter(result["known_issue"] for result in results if result["outcome"] == "known")
    issues = sorted(
        (issue for issue in run.issues if issue.id in counts), key=lambda issue: SEVERITIES.index(issue.severity)
    )
    if not issues:
        return
    yield from _wrapped(f"Known issues: {len(issues)} ", "(--tensorizer-known-issues=off expects none)", width, "bold")
    column = max(len(issue.id) for issue in issues)
    for issue in issues:
        label = f"  {issue.id.ljust(column)}  {issue.severity.ljust(7)}  "
        yield from _wrapped(label, f"{issue.applies}: {issue.reason} [{counts[issue.id]}x]", width)
        if issue.link:
            yield from _wrapped("    ", issue.link, width)  # not beside the reason, where it would be broken in two


def _searched(results: list[dict[str, Any]], width: int) -> Iterable[Line]:
    """What was tried: by all that searched, and by each."""
    searched = [result for result in results if "search" in result]
    if not searched:
        return
    examples = sum(result["search"]["examples"] for result in searched)
    known: Counter[str] = sum((Counter(result["search"]["excused"]) for result in searched), Counter())
    parts = [f"{examples:,} examples"]
    parts += [f"{sum(known.values()):,} known to fail ({_most_common(known)})"] if known else []
    failures = sum(len(result["search"]["failures"]) for result in searched)
    parts.append(f"{failures} distinct failure{'' if failures == 1 else 's'}")
    yield from _wrapped("Tried: ", ", ".join(parts), width, "bold")
    names = [f"{result['check']}  {result['subject'].partition(':')[2]}" for result in searched]
    for name, facts in zip(names, (result["search"] for result in searched), strict=True):
        rate = facts["examples"] / facts["seconds"] if facts["seconds"] else 0.0
        told = f"{facts['examples']:,} in {facts['seconds']:.0f} s ({rate:,.0f} a second), {facts['refused']:,} refused"
        yield from _wrapped(f"  {name.ljust(max(map(len, names)))}  ", told, width)


def _most_common(counts: Counter[str]) -> str:
    some = ", ".join(f"{name} {count:,}x" for name, count in counts.most_common(3))
    return some + (", ..." if len(counts) > 3 else "")


def _skipped(results: list[dict[str, Any]], width: int) -> Iterable[Line]:
    skipped = [result for result in results if result["outcome"] == "skipped"]
    if not skipped:
        return
    parts = []
    unclaimed = sum(result.get("skip") == "capability" for result in skipped)
    if unclaimed:
        names = Counter(result["missing"] for result in skipped if result.get("skip") == "capability").most_common()
        some = ", ".join(name for name, _ in names[:3]) + (", ..." if len(names) > 3 else "")
        parts.append(f"{unclaimed} not claimed by the subject ({some})")
    for name, count in Counter(r["missing"] for r in skipped if r.get("skip") == "requirement").items():
        parts.append(f"{count} for want of {name} (--tensorizer-require={name} makes them fail)")
    others = sum(result.get("skip") == "other" for result in skipped)
    if others:
        parts.append(f"{others} by a mark or a skip of their own")
    yield from _wrapped("Skipped: ", ", ".join(parts), width)


def _failures(results: list[dict[str, Any]], run: SuiteRun, width: int) -> Iterable[Line]:
    blank = False
    for word, outcomes, paint in (("ADVICE", ("advice",), "yellow"), ("FAILS ", ("failed", "error"), "red")):
        grouped: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for result in results:
            if result["outcome"] in outcomes:
                grouped.setdefault((result["check"], result["subject"]), []).append(result)
        for (check, subject), cases in grouped.items():
            if blank:
                yield "", ""
            blank = True
            case = f"  [{cases[0]['case']}]" if cases[0]["case"] else ""
            more = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
            yield from _wrapped(f"{word}  ", f"{check}  {subject.partition(':')[2]}{case}{more}".rstrip(), width, paint)
            yield from _wrapped(" " * 8, cases[0]["message"], width)
            # One line, not wrapped: it is there to be pasted.
            yield f"        {rerun(cases[0], run)}", ""


def rerun(result: dict[str, Any], run: SuiteRun) -> str:
    """The command that runs one check again, with the subjects that it was run with."""
    nodeid = result["nodeid"]
    arguments = ["pytest", "--tensorizer-conformance"]
    for option in OPTIONS:
        if option.name not in run.settings.explicit or option.name == "conformance":
            continue
        value = getattr(run.settings, option.name.replace("-", "_"))
        if option.name == "format" and result["target"] in value:
            value = [result["target"]]  # the others would only be imported
        for one in value if option.kind == "args" else [value]:
            arguments.append(option.flag if option.kind == "bool" else f"{option.flag}={one}")
    return " ".join([*map(shlex.quote, arguments), shlex.quote(nodeid)])


def _wrapped(label: str, text: str, width: int, paint: str = "") -> Iterable[Line]:
    """`text` beside `label`, in as many lines as it takes; indented below it where that would leave too little room."""
    options: dict[str, Any] = {"width": width, "break_on_hyphens": False}  # ids and links have hyphens
    if len(label) > width // 2:
        yield label.rstrip()[:width], paint
        label = " " * 4
    for line in textwrap.wrap(text, initial_indent=label, subsequent_indent=" " * len(label), **options):
        yield line, paint


def _verdict(gathered: Gatherer, run: SuiteRun, exitstatus: int, width: int) -> Iterable[Line]:
    counts = {outcome: gathered.count(outcome) for outcome in _OUTCOMES}
    counted = [f"{counts[outcome]} {outcome}" for outcome in _OUTCOMES if counts[outcome] or outcome == "passed"]
    yield from _wrapped("", ", ".join(counted), width)
    failing = counts["failed"] + counts["error"]
    unheard, deselected = len(gathered.unheard()), gathered.deselected
    ran = sum(counts.values()) - counts["skipped"]
    if failing:
        checks = "CHECK FAILS" if failing == 1 else "CHECKS FAIL"
        yield f"NOT PASSED: {failing} REQUIRED {checks}", "red"
    elif unheard or deselected or not ran:
        parts = [f"{number} {what}" for number, what in ((unheard, "not run"), (deselected, "deselected")) if number]
        parts += ["what ran has passed" if ran else "no check ran"]
        yield from _wrapped("", f"INCOMPLETE: {', '.join(parts)}", width, "yellow")
    elif exitstatus:
        yield f"NOT PASSED: pytest ended with exit status {exitstatus}", "red"
    else:
        known = " OR IS A KNOWN ISSUE" if counts["known"] else ""
        part = "" if run.selection.is_whole else ", OF THE PART THAT WAS ASKED FOR"
        yield f"PASSED: EVERY REQUIRED CHECK PASSES{known}{part}", "green"
