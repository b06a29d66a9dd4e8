"""The wheel, installed in an environment of its own and used elsewhere, is the checkout."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


def _run(*command: object, cwd: Path) -> str:
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    # From a copy, since building leaves files beside the sources.
    files = _run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=REPOSITORY).splitlines()
    for name in files:
        source, target = REPOSITORY / name, directory / "source" / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    _run(
        sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", directory,
        directory / "source", cwd=directory,
    )  # fmt: skip
    return next(directory.glob("*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has this one's packages, and the wheel instead of the checkout."""
    directory = tmp_path_factory.mktemp("clean")
    venv.create(directory, symlinks=True)
    python = directory / "bin" / "python"
    site = Path(_run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=directory).strip())
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "pytest_tensorizer" not in entry.name and not (site / entry.name).exists():
            (site / entry.name).symlink_to(entry)
    _run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel, cwd=directory)
    return python


def test_wheel_has_every_package_and_nothing_at_the_top(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    shipped = {name for name in names if ".dist-info/" not in name}
    sources = {str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "pytest_tensorizer").rglob("*.py")} | {
        f"pytest_tensorizer/conformance/{path.name}" for path in (REPOSITORY / "conformance").glob("*.py")
    }
    assert shipped == sources | {"pytest_tensorizer/py.typed", "pytest_tensorizer/conformance/known_issues.toml"}


def test_wheel_collects_what_the_checkout_collects(python: Path, tmp_path: Path) -> None:
    collect = ["-m", "pytest", "--tensorizer-conformance", "--collect-only", "-q", "-p", "no:cacheprovider"]
    from_wheel = _run(python, *collect, cwd=tmp_path)
    from_checkout = _run(sys.executable, *collect, cwd=REPOSITORY)
    ids = [line for line in from_wheel.splitlines() if "::" in line]
    assert ids == [line for line in from_checkout.splitlines() if "::" in line]
    assert len(ids) > 1000


def test_wheel_runs_the_suite_and_its_clean_processes(python: Path, tmp_path: Path) -> None:
    output = _run(
        python, "-m", "pytest", "--tensorizer-conformance", "-p", "no:cacheprovider",
        "tensorizer-conformance/test_storage.py::test_read",
        "tensorizer-conformance/test_outputs.py::test_identical[tensorizer-gpt2-float32-local]",
        cwd=tmp_path,
    )  # fmt: skip
    assert "PASSED: EVERY REQUIRED CHECK PASSES" in output
    where = _run(python, "-c", "import pytest_tensorizer.conformance as c; print(c.__file__)", cwd=tmp_path)
    assert "site-packages/pytest_tensorizer/conformance" in where
