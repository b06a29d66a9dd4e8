"""The accelerator guard in a session of pytest: what is touched during collection fails it, or is warned of."""

from __future__ import annotations

import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from pytest_tensorizer.accelerator_guard import NVML_CHECK, TOO_LATE, AcceleratorGuard, Touch
from pytest_tensorizer.options import Settings

MODES = ("error", "warn", "off")
ADVICE = f"""\
A process that has touched the accelerator's driver cannot fork for the GPU, and may hold memory there to its end.
Decide inside a fixture or a test rather than on import, or in a process of its own (pytest.mark.fresh_process);
set {NVML_CHECK}=1, with which torch.cuda's is_available and device_count leave the driver
alone; or do without this check: --accelerator-guard=off."""


class AcceleratorWarning(pytest.PytestWarning):
    """Something has touched an accelerator while pytest collected."""


def watch_collection(pluginmanager: pytest.PytestPluginManager) -> None:
    """Watch from now, when the options are not known yet and no conftest is loaded, to the end of collection."""
    watch = _Watch()
    pluginmanager.register(watch)
    watch.guard.install()
    # Its own hooks don't come where the command line is wrong, or --help is asked for.
    pluginmanager.get_plugin("pytestconfig").add_cleanup(watch.guard.remove)  # type: ignore[union-attr]


class _Watch:
    """The plugin that makes a guard's touches failures or warnings of the collector that was at work."""

    def __init__(self) -> None:
        self.guard = AcceleratorGuard()
        self._mode = "warn"
        self._warned: set[Any] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        settings = Settings.of(config)
        self._mode = settings.accelerator_guard or ("error" if settings.runs_suite else "warn")
        if self._mode not in MODES:
            raise pytest.UsageError(
                f"--accelerator-guard (in the ini file accelerator_guard) is {self._mode!r}: use error, warn or off"
            )
        # A clean process collects what its parent has collected, and told.
        if self._mode == "off" or getattr(config, "workerinput", {}).get("workerid") == "clean":
            self._stop(config)

    def _stop(self, config: pytest.Config) -> None:
        self.guard.remove()
        config.pluginmanager.unregister(self)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        start = len(self.guard.touches)
        when = f"while collecting {collector.nodeid}"
        if isinstance(collector, pytest.Session):  # whose report comes last: what no other took is told there
            self.guard.look_back()
            start, when = 0, "outside of the test files"
        report = yield
        trouble = self._tell(collector, start, when)
        if trouble and report.failed:
            report.sections.append(("accelerator guard", trouble))
        elif trouble:
            report.outcome, report.longrepr, report.result = "failed", trouble, []
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        trouble = self._tell(session, 0, "after the test files had been collected")
        if trouble:
            report = pytest.CollectReport(session.nodeid, "failed", trouble, [])
            session.ihook.pytest_collectreport(report=report)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> Generator[None, object, object]:
        try:
            return (yield)
        finally:
            self._stop(session.config)

    def _tell(self, node: pytest.Collector, start: int, when: str) -> str:
        """What `node` should fail with; what need not be an error is warned of."""
        touches = self.guard.settle(start)
        del self.guard.touches[start:]
        errors = []
        for touch in touches:
            story = _story(touch, when, node.config)
            if self._mode == "error":
                errors.append(story)
                continue
            culprit = touch.chain[-1] if touch.chain else (str(node.path), 1)
            if (touch.event, culprit) in self._warned:
                continue
            self._warned.add((touch.event, culprit))
            try:
                # Not `node.warn`: it would import the module once more if that has failed.
                warnings.warn_explicit(AcceleratorWarning(f"{story}\n{ADVICE}"), AcceleratorWarning, *culprit)
            except AcceleratorWarning:  # the user's filters say that it is an error
                errors.append(story)
        return "\n".join([*errors, ADVICE]) if errors else ""


def _story(touch: Touch, when: str, config: pytest.Config) -> str:
    if not touch.chain:
        return touch.event if touch.event == TOO_LATE else f"{touch.event} {when}"
    places = [f"{_short(file, config)}:{line}" for file, line in touch.chain]
    return f"{touch.event} at {places[-1]}, {when}:\n    " + "\n    -> ".join(places)


def _short(file: str, config: pytest.Config) -> str:
    for directory in (config.rootpath, config.invocation_params.dir):
        if Path(file).is_relative_to(directory):
            return str(Path(file).relative_to(directory))
    return file
