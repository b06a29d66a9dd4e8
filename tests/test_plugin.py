"""The plugin costs nothing where it is not used, and says what it offers where it is."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version

import pytest

from pytest_tensorizer import plugin
from pytest_tensorizer.options import OPTIONS

HEAVY = ["torch", "numpy", "hypothesis", "moto", "boto3", "tensorizer", "safetensors", "transformers"]
LIST_MODULES = """
import json, sys, pytest
status = pytest.main(["--co", "-q", *sys.argv[1:]])
print(json.dumps([int(status), sorted(sys.modules)]))
"""


def _modules(pytester: pytest.Pytester, *arguments: str) -> set[str]:
    result = pytester.run(sys.executable, "-c", LIST_MODULES, *arguments)
    status, names = json.loads(result.outlines[-1])
    assert status == pytest.ExitCode.NO_TESTS_COLLECTED
    return set(names)


def test_nothing_heavy_is_imported_where_nothing_is_asked_for(pytester: pytest.Pytester) -> None:
    # Hypothesis's own plugin imports hypothesis at the end of any session.
    without_hypothesis = _modules(pytester, "-p", "no:hypothesispytest")
    assert "pytest_tensorizer.plugin" in without_hypothesis
    assert not without_hypothesis & set(HEAVY)
    added = _modules(pytester) - _modules(pytester, "-p", "no:tensorizer")
    # pytest and the standard library are there anyway.
    foreign = {name.partition(".")[0] for name in added} - sys.stdlib_module_names
    assert foreign == {"pytest_tensorizer"}, sorted(added)
    assert sorted(name for name in added if name.startswith("pytest_tensorizer")) == [
        "pytest_tensorizer",
        "pytest_tensorizer.accelerator_guard",
        "pytest_tensorizer.accelerator_guard_pytest",
        "pytest_tensorizer.after_import",
        "pytest_tensorizer.fixtures",
        "pytest_tensorizer.hookspecs",
        "pytest_tensorizer.options",
        "pytest_tensorizer.plugin",
    ]


def test_what_it_offers_is_listed(pytester: pytest.Pytester) -> None:
    help = pytester.runpytest_inprocess("--help").stdout.str()
    for option in OPTIONS:
        assert option.flag in help
        assert option.ini in help
    fixtures = pytester.runpytest_inprocess("--fixtures").stdout.str()
    for name in plugin.__all__:
        if name.startswith("tensorizer_"):
            assert f"\n{name} " in fixtures
    ours = fixtures.partition("fixtures defined from pytest_tensorizer.fixtures")[2].partition(
        "----- fixtures defined"
    )[0]
    assert "no docstring available" not in ours
    markers = pytester.runpytest_inprocess("--markers").stdout.str()
    assert "@pytest.mark.fresh_process(" in markers
    assert "@pytest.mark.tensorizer_check(" in markers


def test_its_markers_are_known_to_strict_sessions(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "from pytest_tensorizer.suite.check import check\n@check('own/check', subject='engine')\ndef test_own(): pass\n"
    )
    result = pytester.runpytest_inprocess("--strict-markers", "--strict-config", "-W", "error")
    result.assert_outcomes(passed=1)
    assert "tensorizer:" not in result.stdout.str()


def test_the_header_names_subjects_versions_and_device(pytester: pytest.Pytester) -> None:
    arguments = ["--tensorizer-conformance", "--tensorizer-device=cpu", "--co", "-q", "-k", "nothing_is_called_so"]
    selected = ["tensorizer-conformance/test_storage.py", "--tensorizer-format=safetensors"]
    header = pytester.runpytest_inprocess(*arguments, "-v", *selected, "--tensorizer-format=torch").stdout.str()
    assert f"tensorizer: suite {version('pytest-tensorizer')} on cpu, torch {version('torch')}\n" in header
    assert f"tensorizer: formats safetensors {version('safetensors')}, torch {version('torch')}\n" in header
    assert f"tensorizer: engine transformers {version('transformers')}, prompt embeds reference\n" in header


def test_the_ini_file_can_ask_for_the_suite(pytester: pytest.Pytester) -> None:
    pytester.makeini(
        "[pytest]\ntensorizer_conformance = true\ntensorizer_format = safetensors\ntensorizer_device = cpu\n"
        "tensorizer_engine = nope\n"
    )
    result = pytester.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: no engine is called 'nope'*"])
