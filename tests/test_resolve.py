"""`package.module:attribute` becomes an object, or an error that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_tensorizer.resolve import TargetError, distribution_version, instantiate, load_target, module_version


@pytest.fixture(autouse=True)
def _modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "resolve_fails.py").write_text("import os\n\nraise KeyError('no key')\n")
    (tmp_path / "resolve_needs.py").write_text("import resolve_absent.part\n")
    (tmp_path / "resolve_is_no_python.py").write_text("x =\n")
    monkeypatch.syspath_prepend(tmp_path)


def test_found() -> None:
    assert load_target("pathlib:Path", what="thing") is Path
    assert load_target("pathlib:Path.home", what="thing") == Path.home
    assert load_target("os.path:join", what="thing")


@pytest.mark.parametrize("target", ["", "nope", ":x", "x:", "a.b.c"])
def test_the_form(target: str) -> None:
    with pytest.raises(TargetError, match=r"no thing is called .*use one of one, two, or name your own as") as caught:
        load_target(target, what="thing", builtin=("one", "two"))
    assert repr(target) in str(caught.value)
    with pytest.raises(TargetError, match=r": name your own as package.module:attribute"):
        load_target(target, what="thing")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("resolve_absent:x", "thing 'resolve_absent:x': there is no module 'resolve_absent'.*PYTHONPATH"),
        ("pathlib.absent.part:x", "there is no module 'pathlib.absent'"),
        ("pathlib:Nope", "'pathlib' has no attribute 'Nope'"),
        ("pathlib:Path.nope.home", "'pathlib' has no attribute 'Path.nope.home'"),
        ("resolve_fails:x", r"importing 'resolve_fails' fails: KeyError: 'no key' \(.*resolve_fails.py, line 3\)"),
        (
            "resolve_needs:x",
            "importing 'resolve_needs' fails: ModuleNotFoundError: .*'resolve_absent'.*needs.py, line 1",
        ),
        ("resolve_is_no_python:x", r"fails: SyntaxError: invalid syntax \(.*resolve_is_no_python.py, line 1\)"),
        ("..relative:x", "fails: TypeError"),
    ],
)
def test_what_is_not_there(target: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        load_target(target, what="thing")


def test_the_cause_is_kept() -> None:
    with pytest.raises(TargetError) as caught:
        load_target("resolve_fails:x", what="thing")
    assert isinstance(caught.value.__cause__, KeyError)


def test_instances() -> None:
    class Needs:
        def __init__(self, level: int) -> None: ...

    assert instantiate(dict) == {}
    assert instantiate(found := [1]) is found
    with pytest.raises(TargetError, match=r"Needs\(\) fails: TypeError: .*'level'.*needs no arguments"):
        instantiate(Needs)


def test_versions() -> None:
    assert distribution_version("pytest") == pytest.__version__
    assert distribution_version("no-such-distribution") == "unknown"
    assert module_version(pytest.Item) == pytest.__version__
    assert module_version(pytest.raises) == pytest.__version__
    assert module_version(object()) == "unknown"
    assert module_version(test_versions) == "unknown"
