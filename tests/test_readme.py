"""The examples of the README run, its options exist, and its table of them is whole."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib

from pytest_tensorizer import formats, plugin
from pytest_tensorizer.options import OPTIONS
from pytest_tensorizer.suite import known_issues

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def _files() -> dict[str, str]:
    """Name -> content of the Python examples, whose first line has the name; those of one name together."""
    files: dict[str, str] = {}
    for block in _blocks("python"):
        name = block.splitlines()[0].removeprefix("# ")
        files[name] = files.get(name, "") + block
    return files


def _pytest(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, content in _files().items():
        assert name.endswith(".py"), f"an example without a file name: {content[:60]!r}"
        (tmp_path / name).write_text(content, encoding="utf-8")
    return tmp_path


USES_THE_SERVER = """
import urllib.error, urllib.request
import pytest

@pytest.mark.fresh_process
@pytest.mark.parametrize("n", [1, 2])
def test_server(model_server, n):
    with pytest.raises(urllib.error.HTTPError, match="501"):
        urllib.request.urlopen(model_server)
"""


def test_examples_run(repository: Path) -> None:
    (repository / "test_server.py").write_text(USES_THE_SERVER)
    done = _pytest(repository, "-W", "error::pytest.PytestWarning")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "20 passed" in done.stdout, done.stdout


def test_own_format_and_loader_conform(repository: Path) -> None:
    """The example of a format is one: what it claims it does, and what it does not claim is skipped."""
    done = _pytest(
        repository, "--tensorizer-conformance", "--tensorizer-format=acme_weights:Acme",
        "tensorizer-conformance/test_roundtrip.py", "tensorizer-conformance/test_prompt_embeds.py::test_squeezes",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^ +(acme +acme_loader|acme_loader +acme)$", done.stdout, re.MULTILINE), done.stdout
    assert "PASSED: EVERY REQUIRED CHECK PASSES" in done.stdout


def test_every_option_is_in_the_table_with_its_twin() -> None:
    for option in OPTIONS:
        assert re.search(rf"^\| `{option.flag}[=`].*`{option.ini}`", README, re.MULTILINE), option.flag
    mentioned = set(re.findall(r"--tensorizer-[a-z0-9-]+", README))
    assert mentioned <= {option.flag for option in OPTIONS}


def test_every_fixture_and_capability_is_told() -> None:
    for name in plugin.__all__:
        if not name.startswith("_"):
            assert f"`{name}`" in README, name
    for capability in formats.CAPABILITIES:
        assert f"`{capability}`" in README, capability


def test_known_issue_example_is_one() -> None:
    (block,) = _blocks("toml")
    (issue,) = known_issues.parse(block, "README.md")
    assert issue.id == "ACME-12"
    assert tomllib.loads(block)


def test_make_targets_exist() -> None:
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    for target in re.findall(r"^make ([a-z-]+)", "\n".join(_blocks("console")), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
