"""The suite in a session: a plugin that is registered only with --tensorizer-conformance."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_tensorizer import devices, formats, shared
from pytest_tensorizer.models import CONFIGS, IMPORTS, from_directory
from pytest_tensorizer.options import Settings
from pytest_tensorizer.process.pytest_child import CLEAN
from pytest_tensorizer.process.server import preload
from pytest_tensorizer.resolve import TargetError
from pytest_tensorizer.suite import known_issues, overrides
from pytest_tensorizer.suite.check import CHECK, Check
from pytest_tensorizer.suite.collect import (
    PACKAGE,
    REGISTRY,
    ROOT,
    Selection,
    StaleIssue,
    Suite,
    SuiteModule,
    fixture_values,
    modules,
)
from pytest_tensorizer.suite.fuzzing import MODULE, Fuzzing, FuzzingReport
from pytest_tensorizer.suite.judge import ATTRIBUTE, Judge
from pytest_tensorizer.suite.known_issues import KnownIssue, RegistryError
from pytest_tensorizer.suite.report.hooks import SuiteReport, SuiteWorker, refuse
from pytest_tensorizer.suite.subjects import Subject, Subjects

if TYPE_CHECKING:
    from pytest_tensorizer.suite.search import PropertySearch

_SEARCH: pytest.StashKey[PropertySearch] = pytest.StashKey()
RUN: pytest.StashKey[SuiteRun] = pytest.StashKey()


class SuiteRun:
    """What one process of a session knows about the suite, and the hooks through which it acts."""

    def __init__(self, config: pytest.Config) -> None:
        """Read the options. Raises pytest.UsageError for one that makes no sense, before any test runs."""
        self.config = config
        self.settings = Settings.of(config)
        self.fuzzing = Fuzzing(self.settings)
        self.selection = self._take_arguments()
        self._extend_path()
        if not hasattr(config, "workerinput"):
            self._check_settings()
            overrides.check(config, self.settings)
        self.overridden = overrides.visible(config)
        self.issues = self._read_issues()
        self.judge = Judge(self.settings, self.issues)
        self._subjects: Subjects | None = None
        self._listed: list[Subject] | None = None
        if _collects(config) or not self._only_builtin():
            self._named = self._resolve()

    # What was asked for

    def _take_arguments(self) -> Selection:
        """Take the suite's own arguments away from pytest, for which they would be paths that do not exist."""
        config = self.config
        root, start = config.rootpath, config.invocation_params.dir
        arguments = [Selection.canonical(argument, root, start) for argument in config.args]
        mine = tuple(argument for argument in arguments if Selection.is_suite(argument))
        others = [argument for argument in arguments if not Selection.is_suite(argument)]
        unknown = [a for a in mine if not any(map(Selection((a,)).has_file, [*modules(), REGISTRY]))]
        if unknown:
            raise pytest.UsageError(
                f"{unknown[0]}: the conformance suite has no such module. It has {', '.join(modules())}"
            )
        if config.stash.get(CLEAN, None) is not None:
            config.args[:] = others
            return Selection(mine)
        # testpaths and the working directory are what pytest falls back on, not what somebody asked for.
        asked = config.args_source is pytest.Config.ArgsSource.ARGS
        config.args[:] = others if asked else []
        return Selection(mine or ((ROOT,) if self.settings.conformance else (f"{ROOT}/{MODULE}",)))

    def _extend_path(self) -> None:
        """`package.module:attribute` may stand where pytest was started, or below the root for the ini file.

        They come last, so that they shadow nothing.
        """
        for directory in (str(self.config.invocation_params.dir), str(self.config.rootpath)):
            if directory not in sys.path:
                sys.path.append(directory)

    def _check_settings(self) -> None:
        settings = self.settings
        try:
            device = devices.choose(settings.device)
        except ValueError as error:
            raise pytest.UsageError(f"--tensorizer-device: {error}") from None
        if device != "cpu" and not devices.torch_is_built_for_cuda():
            raise pytest.UsageError(
                f"--tensorizer-device={settings.device}: the installed torch is not built for CUDA. Install one that "
                "is, or use --tensorizer-device=cpu"
            )
        if "cuda" in settings.require and device == "cpu":
            raise pytest.UsageError(
                f"--tensorizer-require=cuda: engines would run on the CPU (--tensorizer-device={settings.device}); "
                "a card of NVIDIA's and a torch that is built for CUDA are needed"
            )
        directory = settings.model_directory(self.config)
        if directory is not None:
            try:
                from_directory(directory)
            except ValueError as error:
                raise pytest.UsageError(f"--tensorizer-model: {error}") from None
        if settings.s3_endpoint:
            shared.users_service(settings)
        elif settings.s3_credentials:
            raise pytest.UsageError("--tensorizer-s3-credentials says nothing without --tensorizer-s3-endpoint=URL")

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
        except (TargetError, TypeError) as error:
            raise pytest.UsageError(str(error)) from None

    @cached_property
    def _named(self) -> Subjects:
        return self._resolve()

    # Collection

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        report = yield
        if isinstance(collector, pytest.Session) and report.passed and self.selection.arguments:
            self.subjects(collector)  # what is wrong with them is told before a test is collected
            # Whether an entry of the registry is stale shows only when every check is there.
            whole = Selection((ROOT,)) if self.selection.has_file(REGISTRY) else self.selection
            report.result = [*report.result, Suite.of(collector, whole)]
        return report

    def subjects(self, session: pytest.Session) -> Subjects:
        """The subjects of this run, those that fixtures give in the place of those that options name."""
        if self._subjects is None:
            try:
                values = fixture_values(session, sorted(self.overridden)) if self.overridden else {}
                self._subjects = self._named.replaced(values)
            except TargetError as error:
                refuse(self.config, str(error))
            self._check_required(self._subjects)
        return self._subjects

    def _check_required(self, subjects: Subjects) -> None:
        """Refuse a name that nothing needs: misspelt, it would let the gate go quiet that it is there to keep."""
        builtin = [formats.resolve(name) for name in formats.BUILTIN]
        needed = {"cuda", "linux"}.union(
            *(getattr(f, "requirements", {}).values() for f in [*builtin, *subjects.formats])
        )
        for name in self.settings.require:
            if name not in needed:
                refuse(
                    self.config, f"--tensorizer-require={name}: no subject needs that, only {', '.join(sorted(needed))}"
                )

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        if not self.selection.arguments:
            return
        known = {subject.id for subject in self._all_subjects(session)}
        for item in items:
            check = Check.of(item, self.subjects(session).names())
            if check is not None and check.subject in known:
                item.stash[CHECK] = check
        theirs = [item for item in items if not Selection.is_suite(item.nodeid)]
        mine = [item for item in items if Selection.is_suite(item.nodeid)]
        if CLEAN in session.config.stash:  # the parent has looked whether the registry and the arguments make sense
            items[:] = [*theirs, *mine]
            return
        if self.selection.has_file(REGISTRY):
            mine += self._stale(session, [item.stash[CHECK] for item in mine if CHECK in item.stash])
            mine = [item for item in mine if self.selection.has_id(item.nodeid)]
        unmatched = self.selection.unmatched(item.nodeid for item in mine)
        if unmatched:
            refuse(self.config, f"{unmatched[0]}: the conformance suite has no such test for these subjects")
        items[:] = [*theirs, *(mine if _is_alone(session.config) else _spread(mine))]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """In a zygote, import once what every check would import in its turn: most of its time would go there."""
        if session.config.stash.get(CLEAN, "one test") is None:
            preload([*IMPORTS, *sorted(self.subjects(session).imports()), "boto3"])

    def _stale(self, session: pytest.Session, checks: list[Check]) -> list[pytest.Item]:
        found: list[pytest.Item] = []
        for issue in self.issues:
            is_here = issue.checks and any(map(issue.concerns, self._all_subjects(session)))
            if is_here and not any(map(issue.covers, checks)):
                mend = f"remove the entry at {issue.where}, or mend its `checks`"
                found.append(StaleIssue.of(session, issue.id, f"known issue {issue.id} matches no check: {mend}"))
        return found

    # Running

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Give a check of the suite one thread of torch, and the next test what there was before.

        The tiny models have nothing to share out: with `-n 2` on two cores a second thread each makes a run take three
        times as long, as they wait for one another. A model of the user's gets this worker's share.
        """
        torch = sys.modules.get("torch")
        if torch is None or not Selection.is_suite(item.nodeid):
            return (yield)
        before = torch.get_num_threads()
        workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        torch.set_num_threads(max(1, before // workers) if self.settings.model else 1)
        try:
            return (yield)
        finally:
            torch.set_num_threads(before)

    # Results

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        try:
            return (yield)
        except Exception as error:
            check = item.stash.get(CHECK, None)
            if check is None or self.judge.issue_for(check, self._subject(item, check)) is None:
                raise
            # Nobody reads the traceback of an expected failure, and for a file of 5,000 lines it costs 0.2 s.
            raise pytest.fail.Exception(f"{type(error).__name__}: {error}", pytrace=False) from None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        report = yield
        check = item.stash.get(CHECK, None)
        if check is not None:
            value = call.excinfo.value if call.excinfo is not None else None
            self.judge.judge(report, check, self._subject(item, check), value)
            if _SEARCH in item.stash and call.when == "call":
                getattr(report, ATTRIBUTE)["search"] = item.stash[_SEARCH].facts
        return report

    def search(self, item: pytest.Item, directory: Path) -> PropertySearch:
        """For a check that searches: by the time of --tensorizer-fuzz, or a few examples."""
        from pytest_tensorizer.suite.search import PropertySearch

        check, seconds = item.stash[CHECK], self.fuzzing.seconds_for(item)
        root = None if seconds is None else self.config.rootpath
        subject = self._subject(item, check)
        search = PropertySearch(check, subject, self.issues, directory=directory, seconds=seconds, root=root)
        item.stash[_SEARCH] = search
        return search

    def _subject(self, item: pytest.Item, check: Check) -> Subject:
        return next(subject for subject in self._all_subjects(item.session) if subject.id == check.subject)

    def _all_subjects(self, session: pytest.Session) -> list[Subject]:
        if self._listed is None:
            self._listed = self.subjects(session).all()
        return self._listed


class SuiteCollection:
    """Collecting the suite's modules as if no other plugin had an opinion on files.

    `--lf` skips files without failures by their path, and the suite's ids are no paths.
    """

    @pytest.hookimpl(tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Any:
        if not isinstance(collector, SuiteModule):
            return None
        runner: Any = collector.config.pluginmanager.get_plugin("runner")
        return runner.pytest_make_collect_report(collector=collector)


def register(config: pytest.Config) -> None:
    """Bring the suite into this session. Called in `pytest_configure` when the flag is given."""
    run = SuiteRun(config)
    config.stash[RUN] = run
    config.pluginmanager.register(run, "tensorizer-suite")
    config.pluginmanager.register(SuiteCollection(), "tensorizer-suite-collection")
    if run.fuzzing.total is not None:
        config.pluginmanager.register(run.fuzzing, "tensorizer-suite-fuzzing")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SuiteReport(run), "tensorizer-suite-report")
        if run.fuzzing.total is not None:
            config.pluginmanager.register(FuzzingReport(config, run.fuzzing.total), "tensorizer-suite-fuzzing-report")
    elif hasattr(config, "workeroutput"):
        config.pluginmanager.register(SuiteWorker(config.workeroutput), "tensorizer-suite-worker")


def parametrize_model(metafunc: pytest.Metafunc) -> None:
    """A check of the suite that asks for a model runs with each of the tiny ones, or with that of --tensorizer-model.

    What users' own tests do with the fixture is theirs to say.
    """
    if not metafunc.module.__name__.startswith(PACKAGE):
        return
    directory = Settings.of(metafunc.config).model_directory(metafunc.config)
    names = list(CONFIGS) if directory is None else [directory.resolve().name]
    metafunc.parametrize("tensorizer_model", names, indirect=True)


def parametrize_format(metafunc: pytest.Metafunc) -> None:
    """One test for each format under test, whose name is the first part of its id."""
    config, session = metafunc.config, metafunc.definition.session
    run = config.stash.get(RUN, None)
    if run is not None:
        found = run.subjects(session).formats
    elif "tensorizer_formats" in overrides.visible(config):
        found = fixture_values(session, ["tensorizer_formats"])["tensorizer_formats"]
    else:
        found = [formats.resolve(target) for target in Settings.of(config).format]
    metafunc.parametrize("tensorizer_format", [format.name for format in found], indirect=True)


def _is_alone(config: pytest.Config) -> bool:
    return not hasattr(config, "workerinput") or CLEAN in config.stash


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
