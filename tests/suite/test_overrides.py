"""A repository chooses its subjects by fixtures: where they work they are used, and elsewhere nothing is tested."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_tensorizer.suite.overrides import _fixtures_in

MISSING = "tensorizer-conformance/test_storage.py::test_missing"
ACCEPTS = "tensorizer-conformance/test_prompt_embeds.py::test_accepts[dense-cpu-float32]"
FORMATS = """
import pytest, mine

@pytest.fixture(scope="session")
def tensorizer_formats():
    return [mine.Mine(), mine.Mute()]
"""
OTHERS = """
import pytest, mine
from pytest_tensorizer.engines.transformers import TransformersEngine
from pytest_tensorizer.prompt_embeds import load_prompt_embeds as reference

class Engine(TransformersEngine):
    name, version = "my-engine", "7"

class Loader:
    name, version = "my-loader", "8"
    def __call__(self, payload, spec):
        return reference(payload, spec)

@pytest.fixture(scope="session", name="tensorizer_engine")
def engine():
    return Engine()

@pytest.fixture
def tensorizer_prompt_embeds_loader(tmp_path, request):
    return Loader()
"""


@pytest.fixture
def repository(repository: Any) -> Any:
    """Its conftests import `mine`, which pytest's own `rootdir/conftest.py` mode does not put on the path."""
    repository.pytester.syspathinsert(repository.path)
    return repository


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import pytest\n@pytest.fixture\ndef tensorizer_formats(): ...", {"tensorizer_formats"}),
        ("from pytest import fixture\n@fixture(scope='session')\ndef tensorizer_engine(): ...", {"tensorizer_engine"}),
        ("import pytest\n@pytest.fixture(name='tensorizer_engine')\ndef mine(): ...", {"tensorizer_engine"}),
        ("import pytest\n@pytest.fixture\nasync def tensorizer_formats(): ...", {"tensorizer_formats"}),
        ("from helpers import tensorizer_formats, other", {"tensorizer_formats"}),
        ("from helpers import mine as tensorizer_engine", {"tensorizer_engine"}),
        ("def tensorizer_formats(): ...", set()),
        ("import pytest\n@pytest.fixture\ndef uses(tensorizer_formats): ...", set()),
        ("# tensorizer_formats\nthis is no Python", set()),
        ("", set()),
    ],
)
def test_overrides_are_found_by_reading(source: str, expected: set[str], tmp_path: Path) -> None:
    path = tmp_path / "conftest.py"
    path.write_text(source, encoding="utf-8")
    assert set(_fixtures_in(path)) == expected


def test_formats_of_the_root_conftest_are_tested(repository: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.write("conftest.py", FORMATS)
    repository.write("pytest.ini", "[pytest]\n")
    (repository.path / "sub").mkdir()
    monkeypatch.chdir(repository.path / "sub")
    arguments = [f"{MISSING}_named[{name}-local]" for name in ("mine", "mute")]
    run = repository.run(*arguments)
    # An xfail: level `should`.
    assert run.outcomes == {"passed": 1, "xfailed": 1}, run.out
    assert "tensorizer: formats (conftest.py)" in run.out
    assert "1.5" in run.summary
    assert "ADVICE  storage/missing-named  mute  [local]" in run.summary
    repository.run("tensorizer-conformance/test_storage.py::test_write[safetensors-local]").assert_refused(
        "no such test"
    )


def test_engine_and_loader_of_the_root_conftest_are_tested(repository: Any) -> None:
    repository.write("conftest.py", OTHERS)
    arguments = [ACCEPTS, "tensorizer-conformance/test_outputs.py::test_engine[llama]"]
    run = repository.run("--tensorizer-format=mine:Mine", *arguments)
    assert run.outcomes == {"passed": 2}, run.out
    assert "tensorizer: engine (conftest.py), prompt embeds (conftest.py)" in run.out
    assert "my-engine" in run.summary
    assert "my-loader" in run.summary


def test_plugins_may_override_too(repository: Any) -> None:
    repository.write("conftest.py", "pytest_plugins = ['helpers']\n")
    repository.write("helpers.py", FORMATS)
    assert repository.run(f"{MISSING}[mute-local]").outcomes == {"passed": 1}
    repository.write(
        "conftest.py",
        "import pytest, mine\n"
        "class Plugin:\n    @pytest.fixture\n    def tensorizer_formats(self): return [mine.Mine()]\n"
        "def pytest_configure(config): config.pluginmanager.register(Plugin())\n",
    )
    # Registered while pytest is being configured, and yet seen.
    run = repository.run(f"{MISSING}[mine-local]")
    assert run.outcomes == {"passed": 1}, run.out + run.errors


@pytest.mark.parametrize("testpaths", ["", "testpaths = tests"])
def test_an_override_further_down_is_a_usage_error(repository: Any, testpaths: str) -> None:
    """Whether pytest would have loaded that conftest or not."""
    stray = repository.write("tests/conftest.py", FORMATS)
    repository.write("pytest.ini", f"[pytest]\nnorecursedirs = *\n{testpaths}\n")
    told = (str(stray), "'tensorizer_formats'", f"move it to {repository.path / 'conftest.py'}", "--tensorizer-format")
    repository.run(f"{MISSING}[safetensors-local]").assert_refused(*told)
    repository.run("tests").assert_refused(*told)
    # Not where something else chooses the subject.
    named = repository.run("--tensorizer-format=mine:Mine", f"{MISSING}[mine-local]")
    assert named.outcomes == {"passed": 1}, named.out + named.errors
    repository.write("conftest.py", FORMATS)
    assert repository.run(f"{MISSING}[mine-local]").outcomes == {"passed": 1}


def test_conftests_that_are_no_ones_are_not_read(repository: Any) -> None:
    repository.write("pytest.ini", "[pytest]\nnorecursedirs = vendor\n")
    for directory in ("vendor/theirs", "venv", "node_modules/x"):
        repository.write(f"{directory}/conftest.py", FORMATS)
    repository.write("venv/pyvenv.cfg", "")
    assert repository.run("--tensorizer-format=safetensors", "--co", "-q", f"{MISSING}[safetensors-local]").status == 0
    repository.run("--co", "-q", "-c", "pytest.ini", "-o", "norecursedirs=").assert_refused("vendor")


def test_a_root_conftest_that_pytest_does_not_load(repository: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    conftest = repository.write("project/conftest.py", FORMATS)
    repository.write("project/pytest.ini", "[pytest]\n")
    (repository.path / "elsewhere").mkdir()
    monkeypatch.chdir(repository.path / "elsewhere")
    far = ["-c", "../project/pytest.ini", f"{MISSING}[safetensors-local]"]
    repository.run(*far).assert_refused(str(conftest), f"start pytest below {conftest.parent}")
    # Nobody expects a conftest to count who forbids them all.
    monkeypatch.chdir(conftest.parent)
    run = repository.run("--noconftest", f"{MISSING}[safetensors-local]")
    assert run.outcomes == {"passed": 1}, run.out + run.errors
    assert "formats tensorizer 2" in run.out


@pytest.mark.parametrize("place", ["command line", "ini file"])
def test_an_override_and_an_option_are_a_usage_error(repository: Any, place: str) -> None:
    repository.write("conftest.py", FORMATS)
    option = ["--tensorizer-format=mine:Mine"]
    if place == "ini file":
        repository.write("pytest.ini", "[pytest]\ntensorizer_format = mine:Mine\n")
        option = []
    repository.run(*option, f"{MISSING}[mine-local]").assert_refused(
        "--tensorizer-format is given", "'tensorizer_formats'", "keep one"
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return None", "gives None: return a list of formats"),
        ("return []", "gives []"),
        ("return [mine.Mine]", "is a class: give an object"),
        ("return [object()]", "lacks name, suffix, capabilities, save, load"),
        ("return [mine.Mine(), mine.Mine()]", "two formats are called 'mine'"),
        ("raise KeyError('no key')", "KeyError: 'no key'"),
        ("pytest.skip('not today')", "not today"),
        ("return missing_name", "missing_name"),
    ],
)
def test_an_override_that_gives_no_formats(repository: Any, body: str, words: str) -> None:
    repository.write("conftest.py", FORMATS.replace("return [mine.Mine(), mine.Mute()]", body))
    repository.run(f"{MISSING}[mine-local]").assert_refused(words)


def test_own_tests_run_once_for_each_format_of_the_conftest(repository: Any) -> None:
    """Without the suite as with it: a user's checks and the suite's use the same fixtures."""
    repository.write("conftest.py", FORMATS)
    repository.write(
        "test_own.py", "def test_own(tensorizer_format):\n    assert tensorizer_format.suffix == '.mine'\n"
    )
    ids = [f"test_own.py::test_own[{name}] PASSED" for name in ("mine", "mute")]
    alone = repository.pytester.runpytest_inprocess("-v")
    alone.assert_outcomes(passed=2)
    alone.stdout.fnmatch_lines([f"{line.replace('[', '[[]')}*" for line in ids])
    beside = repository.run("-v", "test_own.py", f"{MISSING}[mine-local]")
    assert beside.outcomes == {"passed": 3}, beside.out
