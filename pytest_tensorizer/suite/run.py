"""The suite in a session: a plugin that is registered only with --tensorizer-conformance."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import pytest

from pytest_tensorizer import formats
from pytest_tensorizer.options import Settings
from pytest_tensorizer.process.pytest_child import ONLY
from pytest_tensorizer.resolve import TargetError
from pytest_tensorizer.suite import known_issues, overrides
from pytest_tensorizer.suite.check import Check
from pytest_tensorizer.suite.collect import PACKAGE, ROOT, Selection, StaleIssue, Suite, SuiteModule, fixture_values, modules
from pytest_tensorizer.suite.judge import Judge
from pytest_tensorizer.suite.known_issues import KnownIssue, RegistryError
from pytest_tensorizer.suite.report.gather import Gatherer
from pytest_tensorizer.suite.subjects import Subject, Subjects

_CHECK: pytest.StashKey[Check] = pytest.StashKey()
RUN: pytest.StashKey[SuiteRun] = pytest.StashKey()


class SuiteRun:
    """What one process of a session knows about the suite, and the hooks through which it acts."""

    def __init__(self, config: pytest.Config) -> None:
        """Read the options. Raises pytest.UsageError for one that makes no sense, before any test runs."""
        pytest.register_assert_rewrite(PACKAGE)
        self.config = config
        self.settings = Settings.of(config)
        self.selection = self._take_arguments()
        self._put_start_directory_on_path()
        self.overridden = overrides.visible_to_suite(config, self.settings)
        self.issues = self._read_issues()
        self.judge = Judge(self.settings, self.issues)
        if _collects(config) or not self._only_builtin():
            self._named = self._resolve()

    # What was asked for

    def _take_arguments(self) -> Selection:
        """Take the suite's own arguments away from pytest, for which they would be paths that do not exist."""
        config = self.config
        mine = tuple(argument for argument in config.args if Selection.is_suite(argument))
        others = [argument for argument in config.args if not Selection.is_suite(argument)]
        unknown = [a for a in mine if not any(Selection((a,)).has_file(name) for name in modules())]
        if unknown:
            raise pytest.UsageError(
                f"{unknown[0]}: the conformance suite has no such module. It has {', '.join(modules())}"
            )
        if ONLY in config.stash:
            config.args[:] = others
            return Selection(mine)
        # testpaths and the working directory are what pytest falls back on, not what somebody asked for.
        asked = config.args_source is pytest.Config.ArgsSource.ARGS
        config.args[:] = others if asked else []
        return Selection(mine if mine else (ROOT,))

    def _put_start_directory_on_path(self) -> None:
        """`package.module:attribute` may stand where pytest was started; last, so that it shadows nothing."""
        import sys

        directory = str(self.config.invocation_params.dir)
        if directory not in sys.path:
            sys.path.append(directory)

    def _read_issues(self) -> list[KnownIssue]:
        wanted = self.settings.known_issues
        if wanted == "off":
            return []
        try:
            more = known_issues.read(self.config.invocation_params.dir / wanted) if wanted else []
        except RegistryError as error:
            raise pytest.UsageError(f"--tensorizer-known-issues: {error}") from None
        return [*more, *known_issues.shipped()]

    def _only_builtin(self) -> bool:
        return not self.settings.explicit & {"format", "engine", "prompt-embeds"}

    def _resolve(self) -> Subjects:
        try:
            return Subjects.resolve(self.settings)
        except TargetError as error:
            raise pytest.UsageError(str(error)) from None

    @cached_property
    def _named(self) -> Subjects:
        return self._resolve()

    # Collection

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[Any]:
        report = yield
        if isinstance(collector, pytest.Session) and report.passed and self.selection.arguments:
            self.subjects = self._with_overrides(collector)
            report.result = [*report.result, Suite.of(collector, self.selection)]
        return report

    def _with_overrides(self, session: pytest.Session) -> Subjects:
        if not self.overridden:
            return self._named
        try:
            return self._named.replaced(fixture_values(session, sorted(self.overridden)))
        except TargetError as error:
            raise pytest.UsageError(str(error)) from None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        if not hasattr(self, "subjects"):
            return
        for item in items:
            check = Check.of(item, self.subjects.names())
            if check is not None:
                item.stash[_CHECK] = check
        unmatched = self.selection.unmatched(item.nodeid for item in items if Selection.is_suite(item.nodeid))
        if unmatched:
            raise pytest.UsageError(f"{unmatched[0]}: the conformance suite has no such test for these subjects")
        if self.selection.arguments == (ROOT,) and ONLY not in session.config.stash:
            items += self._stale(session, [item.stash[_CHECK] for item in items if _CHECK in item.stash])
        if not _is_alone(session.config):
            items[:] = _spread(items)

    def _stale(self, session: pytest.Session, checks: list[Check]) -> list[pytest.Item]:
        found: list[pytest.Item] = []
        for issue in self.issues:
            if any(issue.concerns(subject) for subject in self.subjects.all()) and not any(map(issue.covers, checks)):
                message = f"known issue {issue.id} matches no check: remove the entry at {issue.where}, or mend its `checks`"
                found.append(StaleIssue.of(session, issue.id, message))
        return found

    # Results

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        try:
            return (yield)
        except Exception as error:
            check = item.stash.get(_CHECK, None)
            if check is None or self.judge.issue_for(check, self._subject(check)) is None:
                raise
            # Nobody reads the traceback of an expected failure, and for a file of 5,000 lines it costs 0.2 s.
            raise pytest.fail.Exception(f"{type(error).__name__}: {error}", pytrace=False) from None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
        report = yield
        check = item.stash.get(_CHECK, None)
        if check is not None:
            value = call.excinfo.value if call.excinfo is not None else None
            self.judge.judge(report, check, self._subject(check), value)
        return report

    def _subject(self, check: Check) -> Subject:
        return next(subject for subject in self._all_subjects if subject.id == check.subject)

    @cached_property
    def _all_subjects(self) -> list[Subject]:
        return self.subjects.all()


class SuiteReport:
    """The hooks of the process that talks to people: header and summary. Not registered in workers and children."""

    def __init__(self, run: SuiteRun) -> None:
        self._run = run
        self._gatherer = Gatherer(ROOT)

    def pytest_report_header(self) -> list[str]:
        from pytest_tensorizer.suite.report.terminal import header

        return header(self._run.settings, self._run.overridden)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._gatherer.expect(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        self._gatherer.expect(ids)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._gatherer.deselected += len(items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._gatherer.add(report)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Iterator[None]:
        # A session that calls itself green although a check was never heard of again is not.
        if exitstatus == 0 and self._gatherer.unheard():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        yield

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int, config: pytest.Config) -> Iterator[None]:
        yield
        if config.option.collectonly:
            return
        from pytest_tensorizer.suite.report.terminal import write

        write(terminalreporter, self._gatherer, self._run, int(exitstatus))


class SuiteCollection:
    """Collecting the suite's modules as if no other plugin had an opinion on files.

    `--lf` skips files without failures by their path, and the suite's ids are no paths.
    """

    @pytest.hookimpl(tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Any:
        if not isinstance(collector, SuiteModule):
            return None
        return collector.config.pluginmanager.get_plugin("runner").pytest_make_collect_report(collector=collector)


def register(config: pytest.Config) -> None:
    """Bring the suite into this session. Called in `pytest_configure` when the flag is given."""
    run = SuiteRun(config)
    config.stash[RUN] = run
    config.pluginmanager.register(run, "tensorizer-suite")
    config.pluginmanager.register(SuiteCollection(), "tensorizer-suite-collection")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SuiteReport(run), "tensorizer-suite-report")


def parametrize_format(metafunc: pytest.Metafunc) -> None:
    """One test for each format under test, whose name is the first part of its id."""
    run = metafunc.config.stash.get(RUN, None)
    if run is not None:
        names = [format.name for format in run.subjects.formats]
    else:
        names = [formats.resolve(target).name for target in Settings.of(metafunc.config).format]
    metafunc.parametrize("tensorizer_format", names, indirect=True)


def _is_alone(config: pytest.Config) -> bool:
    return not hasattr(config, "workerinput") or ONLY in config.stash


def _collects(config: pytest.Config) -> bool:
    """Whether this process collects tests: the controller of xdist does not."""
    return hasattr(config, "workerinput") or not getattr(config.option, "tx", None)


def _spread(items: list[pytest.Item]) -> list[pytest.Item]:
    """Mix the slow tests evenly into the fast ones: xdist deals in blocks, and a block of slow ones keeps a worker."""
    slow = [item for item in items if item.get_closest_marker("fresh_process")]
    fast = [item for item in items if not item.get_closest_marker("fresh_process")]
    if not slow or not fast:
        return items
    step = len(items) / len(slow)
    ranked = [(step * i, item) for i, item in enumerate(slow)]
    step = len(items) / len(fast)
    ranked += [(step * i + 0.5, item) for i, item in enumerate(fast)]
    return [item for _, item in sorted(ranked, key=lambda pair: pair[0])]

