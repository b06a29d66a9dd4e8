"""The suite gets into any session, under the same ids, whatever the repository around it has set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_tensorizer.suite.collect import Selection, modules

MINE = "--tensorizer-format=mine:Mine"
STORAGE = "tensorizer-conformance/test_storage.py"
LOCAL = [f"{STORAGE}::test_{name}[mine-local]" for name in ("write", "read", "missing", "missing_named")]
OWN_TEST = "def test_own(): pass\n"


# Selection


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("tensorizer-conformance", True),
        ("tensorizer-conformance/", True),
        ("tensorizer-conformance/test_x.py::test_y[a/b]", True),
        ("tensorizer-conformance-notes", False),
        ("tests/tensorizer-conformance", False),
        ("test_x.py::test_tensorizer-conformance", False),
    ],
)
def test_which_arguments_are_the_suites(argument: str, expected: bool) -> None:
    assert Selection.is_suite(argument) is expected


def test_selection_by_file_and_name() -> None:
    whole = Selection(("tensorizer-conformance/",))
    assert whole.is_whole
    assert whole.has("test_x.py", "test_y[a]")

    file = Selection(("tensorizer-conformance/test_x.py",))
    assert not file.is_whole
    assert file.has_file("test_x.py")
    assert not file.has_file("test_z.py")
    assert file.has("test_x.py", "test_y[a]")
    assert not file.has("test_z.py", "test_y[a]")

    function = Selection(("tensorizer-conformance/test_x.py::test_y",))
    assert function.has("test_x.py", "test_y[a]")
    assert not function.has("test_x.py", "test_yy[a]")

    case = Selection(("tensorizer-conformance/test_x.py::test_y[a]", "tensorizer-conformance/test_z.py"))
    assert case.has("test_x.py", "test_y[a]")
    assert not case.has("test_x.py", "test_y[ab]")
    assert case.has("test_z.py", "test_q")
    assert not Selection(()).has("test_x.py", "test_y")


def test_arguments_that_match_nothing_are_told() -> None:
    arguments = tuple(f"tensorizer-conformance/{name}" for name in ("a.py", "a.py::x", "a.py::y", "b.py"))
    assert Selection(arguments).unmatched(["tensorizer-conformance/a.py::x[1]"]) == list(arguments[2:])


@pytest.mark.parametrize(
    ("argument", "start", "expected"),
    [
        ("../tensorizer-conformance/test_x.py::test_y[a/b]", "sub", "tensorizer-conformance/test_x.py::test_y[a/b]"),
        ("tensorizer-conformance/test_x.py", "sub", "tensorizer-conformance/test_x.py"),
        ("./tensorizer-conformance", "", "tensorizer-conformance"),
        ("../root/tensorizer-conformance/test_x.py", "../elsewhere", "tensorizer-conformance/test_x.py"),
        ("../tests/test_x.py::test_y", "sub", "../tests/test_x.py::test_y"),
        ("..", "sub", ".."),
    ],
)
def test_ids_as_pytest_shows_them_below_the_root(argument: str, start: str, expected: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    assert Selection.canonical(argument, root, root / start) == expected


# Ids


def _ids(run: Any) -> list[str]:
    assert run.status == 0, run.out + run.errors
    return sorted(line for line in run.out.splitlines() if "::" in line)


def test_ids_do_not_depend_on_the_place(repository: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.write("pyproject.toml", "[tool.pytest.ini_options]\n")
    repository.write("elsewhere/pytest.ini", "[pytest]\npython_files = x_*.py\n")
    (repository.path / "sub/deep").mkdir(parents=True)
    arguments = ["--co", "-q", STORAGE, "--tensorizer-format=safetensors"]
    ids = _ids(repository.run(*arguments))
    assert f"{STORAGE}::test_write[safetensors-local]" in ids
    assert len(ids) == 9
    assert _ids(repository.run(*arguments, "--rootdir=elsewhere")) == ids
    assert _ids(repository.run(*arguments, "-c", "elsewhere/pytest.ini")) == ids
    assert _ids(repository.run(*arguments, "--import-mode=importlib")) == ids
    monkeypatch.chdir(repository.path / "sub/deep")
    assert _ids(repository.run(*arguments)) == ids


def test_each_part_of_the_suite_can_be_named(repository: Any) -> None:
    areas = [f"tensorizer-conformance/{name}" for name in modules()]
    whole = _ids(repository.run("--co", "-q", MINE))
    assert _ids(repository.run("--co", "-q", MINE, "tensorizer-conformance/")) == whole
    assert _ids(repository.run("--co", "-q", MINE, *areas)) == whole
    assert {nodeid.partition("::")[0] for nodeid in whole} == set(areas)
    assert len(set(whole)) == len(whole)


def test_a_pasted_id_runs_exactly_that_test(repository: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.write("pytest.ini", "[pytest]\n")
    (repository.path / "sub").mkdir()
    for start in ("", "sub"):
        monkeypatch.chdir(repository.path / start)
        monkeypatch.syspath_prepend(repository.path)
        run = repository.run("-rs", "-v", MINE, LOCAL[0])
        assert run.outcomes == {"passed": 1}, run.out
        assert f"{LOCAL[0]} PASSED" in run.out
    # Below the root, the lines of pytest's own short summary begin with ../
    run = repository.run("-rA", "--tensorizer-format=mine:Lossy", f"{STORAGE}::test_write[lossy-local]")
    shown = next(line.split()[1] for line in run.out.splitlines() if line.startswith("FAILED"))
    assert shown.startswith("../")
    assert repository.run("--tensorizer-format=mine:Lossy", shown).outcomes == {"failed": 1}


@pytest.mark.parametrize(
    "argument", ["tensorizer-conformance/test_nope.py", f"{STORAGE}::test_nope", f"{STORAGE}::test_write[mine-disk]"]
)
def test_an_unknown_file_or_test_is_a_usage_error(repository: Any, argument: str) -> None:
    repository.run(MINE, LOCAL[1], argument).assert_refused(argument, "no such")


def test_keyword_expressions(repository: Any) -> None:
    run = repository.run(MINE, STORAGE, "-k", "write and local")
    assert run.outcomes == {"passed": 1, "deselected": 8}
    assert "INCOMPLETE: 8 deselected, what ran has passed" in run.summary
    assert repository.run(MINE, "-k", "nothing_is_called_that").status == pytest.ExitCode.NO_TESTS_COLLECTED


# What runs


def test_without_a_path_only_the_suite_runs(repository: Any) -> None:
    repository.write("pytest.ini", "[pytest]\ntestpaths = tests\n")
    repository.write("tests/test_own.py", OWN_TEST)
    repository.write("test_root.py", OWN_TEST)
    run = repository.run("--co", "-q", MINE)
    assert all(nodeid.startswith("tensorizer-conformance/") for nodeid in _ids(run))


def test_with_a_path_both_run(repository: Any) -> None:
    repository.write("tests/test_own.py", OWN_TEST)
    ids = _ids(repository.run("--co", "-q", MINE, "tests"))
    assert ids[-1] == "tests/test_own.py::test_own"
    assert len(ids) > 100
    run = repository.run(MINE, "tests/test_own.py::test_own", *LOCAL[:2])
    assert run.outcomes == {"passed": 3}
    assert "PASSED: EVERY REQUIRED CHECK PASSES, OF THE PART THAT WAS ASKED FOR" in run.summary


def test_without_the_option_there_is_no_suite(repository: Any) -> None:
    repository.write("test_own.py", OWN_TEST)
    result = repository.pytester.runpytest_inprocess()
    result.assert_outcomes(passed=1)
    assert "conformance" not in result.stdout.str()


HOSTILE = """
[pytest]
python_files = check_*.py
python_functions = check_*
python_classes = Nothing
filterwarnings = error
xfail_strict = true
usefixtures = only_below
norecursedirs = *
collect_imported_tests = false
consider_namespace_packages = true
addopts = -p no:cacheprovider --strict-markers --strict-config -W error --import-mode=importlib --doctest-modules
"""


def test_a_hostile_ini_file(repository: Any) -> None:
    repository.write("pytest.ini", HOSTILE)
    repository.write(
        "tests/conftest.py",
        "import pytest\n@pytest.fixture\ndef only_below():\n    raise RuntimeError('not for the suite')\n",
    )
    repository.write("tests/check_own.py", "import pytest\n@pytest.mark.xfail\ndef check_own(): pass\n")
    repository.write(
        "conftest.py",
        "import pytest, mine, warnings\n"
        "@pytest.fixture\ndef tensorizer_formats(): return [mine.Mine()]\n"
        "@pytest.fixture(autouse=True)\ndef noisy(tmp_path): warnings.warn('noise')\n",
    )
    repository.pytester.syspathinsert(repository.path)
    run = repository.run(*LOCAL, "tensorizer-conformance/test_modules.py", "tests")
    # The one that did not pass is the repository's own, for which the ini file still holds.
    assert run.outcomes == {"passed": 4, "skipped": 12, "xfailed": 1}, run.out
    assert "4 passed, 12 skipped" in run.summary


# --lf


def test_failures_run_again(repository: Any) -> None:
    issues = repository.write(
        "issues.toml",
        '[[issue]]\nid = "X"\nchecks = ["storage/nothing"]\napplies = "lossy"\nreason = "r"\nseverity = "info"\n',
    )
    lossy = ["--tensorizer-format=mine:Lossy", f"--tensorizer-known-issues={issues}"]
    some = [f"{STORAGE}::test_{name}[lossy-local]" for name in ("write", "missing")]
    entry = "tensorizer-conformance/known_issues.toml::X"
    assert repository.run(*lossy, *some, entry).outcomes == {"failed": 2, "passed": 1}
    run = repository.run(*lossy, "--lf", "-v", "-rf", *some, entry)
    assert run.outcomes == {"failed": 2, "deselected": 1}, run.out
    # And without naming them: all is collected, and only these two run.
    run = repository.run(*lossy, "--lf", "-v")
    assert {key: run.outcomes[key] for key in ("failed", "passed") if key in run.outcomes} == {"failed": 2}
    assert f"{some[0]} FAILED" in run.out
    assert f"{entry} FAILED" in run.out


def test_failures_run_again_beside_those_of_own_tests(repository: Any) -> None:
    """`--lf` skips files without failures by their path, and the suite's ids are no paths."""
    repository.write("test_bad.py", "def test_bad(): assert 0\n")
    repository.write("test_good.py", OWN_TEST)
    arguments = ["--tensorizer-format=mine:Lossy", "test_bad.py", "test_good.py"]
    arguments += [f"{STORAGE}::test_{name}[lossy-local]" for name in ("write", "missing")]
    assert repository.run(*arguments).outcomes == {"failed": 2, "passed": 2}
    run = repository.run(*arguments, "--lf")
    assert run.outcomes == {"failed": 2, "deselected": 1}, run.out
    # Another repository's failures do not hide the suite.
    run = repository.run("--tensorizer-format=mine:Mine", "--lf", "test_good.py", LOCAL[0])
    assert run.status == 0, run.out
