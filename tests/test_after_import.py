from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pytest_tensorizer.after_import import AfterImport


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a module `late_one`, which can be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "late_one.py"
    path.write_text("value = 1\n")
    finders = list(sys.meta_path)
    yield path
    sys.modules.pop("late_one", None)
    assert sys.meta_path == finders, "nothing of it is left"


def test_acts_once_after_the_import(module: Path) -> None:
    seen: list[ModuleType] = []
    AfterImport("late_one", lambda late: (seen.append(late), setattr(late, "value", late.value + 1))[0])
    assert seen == []
    late = importlib.import_module("late_one")
    assert seen == [late]
    assert late.value == 2
    assert inspect.getsource(late) == "value = 1\n"
    assert late.__spec__ is not None
    assert type(late.__spec__.loader).__name__ == "SourceFileLoader"
    assert importlib.reload(late).value == 1
    assert len(seen) == 1


def test_acts_now_if_it_is_there(module: Path) -> None:
    late = importlib.import_module("late_one")
    seen: list[ModuleType] = []
    AfterImport("late_one", seen.append)
    assert seen == [late]


def test_an_import_that_fails_may_be_tried_again(module: Path) -> None:
    module.write_text("1 / 0\n")
    seen: list[ModuleType] = []
    AfterImport("late_one", seen.append)
    with pytest.raises(ZeroDivisionError):
        importlib.import_module("late_one")
    assert seen == []
    module.write_text("value = 'mended'\n")
    importlib.invalidate_caches()
    assert importlib.import_module("late_one").value == "mended"
    assert len(seen) == 1


def test_looking_for_it_is_no_import(module: Path) -> None:
    seen: list[ModuleType] = []
    waiting = AfterImport("late_one", seen.append)
    assert importlib.util.find_spec("late_one") is not None
    assert importlib.util.find_spec("late_two") is None
    assert seen == []
    waiting.cancel()
    waiting.cancel()
    importlib.import_module("late_one")
    assert seen == []


def test_two_may_wait_for_one(module: Path) -> None:
    seen: list[str] = []
    AfterImport("late_one", lambda _: seen.append("first"))
    AfterImport("late_one", lambda _: seen.append("second"))
    importlib.import_module("late_one")
    assert sorted(seen) == ["first", "second"]
