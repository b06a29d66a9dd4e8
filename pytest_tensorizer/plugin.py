"""The pytest plugin: a table of contents. Each hook hands over to the module that does the work.

pytest loads this in every run on the user's machine, so it imports pytest and the standard library, and what it
hands over to is imported when it is needed.
"""

from __future__ import annotations

import pytest

from pytest_tensorizer import accelerator_guard_pytest, hookspecs, options
from pytest_tensorizer.fixtures import (
    _tensorizer_s3_service,
    tensorizer_bucket,
    tensorizer_checkpoint,
    tensorizer_device,
    tensorizer_engine,
    tensorizer_format,
    tensorizer_formats,
    tensorizer_hidden_credentials,
    tensorizer_model,
    tensorizer_models,
    tensorizer_prompt_embeds_loader,
    tensorizer_run_isolated,
    tensorizer_s3,
    tensorizer_serialize,
    tensorizer_storage,
)

# Here, and not when the suite is asked for: by then a conftest may have imported some of it.
pytest.register_assert_rewrite("pytest_tensorizer.conformance")

__all__ = [
    "_tensorizer_s3_service",
    "tensorizer_bucket",
    "tensorizer_checkpoint",
    "tensorizer_device",
    "tensorizer_engine",
    "tensorizer_format",
    "tensorizer_formats",
    "tensorizer_hidden_credentials",
    "tensorizer_model",
    "tensorizer_models",
    "tensorizer_prompt_embeds_loader",
    "tensorizer_run_isolated",
    "tensorizer_s3",
    "tensorizer_serialize",
    "tensorizer_storage",
]

MARKERS = (
    'fresh_process(timeout=60, memory_limit=None, method="zygote"): run the test in a process of its own; timeout in '
    'seconds, memory_limit in bytes or as "4GiB", method "zygote" or "spawn"',
    'tensorizer_check(id, subject, level="must"): a check of the conformance suite; use pytest_tensorizer.suite.check',
)


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    options.add(parser)
    accelerator_guard_pytest.watch_collection(pluginmanager)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hookspecs)


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    # Before Hypothesis' own plugin looks for the profile, when it is configured.
    profile = early_config.known_args_namespace.__dict__.get("hypothesis_profile")
    if profile and profile.startswith("tensorizer-"):
        from pytest_tensorizer.strategies.profiles import register_profiles

        register_profiles()


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if options.Settings.of(config).runs_suite:
        from pytest_tensorizer.suite import run

        run.register(config)
    elif any(argument.startswith("tensorizer-conformance/") for argument in config.args):
        raise pytest.UsageError("ids of the conformance suite are known with --tensorizer-conformance only: add it")


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "tensorizer_format" in metafunc.fixturenames:
        from pytest_tensorizer.suite import run

        run.parametrize_format(metafunc)
    if "tensorizer_model" in metafunc.fixturenames:
        from pytest_tensorizer.suite import run

        run.parametrize_model(metafunc)


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    if not options.needs_terminal(config):
        return []
    from pytest_tensorizer.process import marker

    return marker.isolation_is_off(config, items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if item.get_closest_marker("fresh_process") is None and not options.Settings.of(item.config).fresh_process:
        return None
    from pytest_tensorizer.process import marker

    if not marker.runs_in_clean_process(item):
        return None
    marker.run_in_clean_process(item, nextitem)
    return True


def pytest_tensorizer_child_environment(item: pytest.Item) -> dict[str, str]:
    from pytest_tensorizer import shared

    return shared.child_environment(item)
