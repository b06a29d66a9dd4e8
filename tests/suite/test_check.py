"""A check says what it is: its id, its level, its subject and its case."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_tensorizer.suite.check import Check, check

NAMES = {"engine": "transformers", "prompt-embeds": "reference"}


class _Item:
    """As much of an item as a check looks at."""

    nodeid = "test_x.py::test_y"

    def __init__(self, mark: Any = None, id: str | None = None, **params: Any) -> None:
        self._mark = mark
        if id is not None:
            self.callspec = type("CallSpec", (), {"id": id, "params": params})()

    def get_closest_marker(self, name: str) -> Any:
        return self._mark.mark if self._mark is not None and self._mark.name == name else None


def _of(*args: Any, **kwargs: Any) -> Any:
    item: Any = _Item(*args, **kwargs)
    return Check.of(item, NAMES)


def test_check_of_a_format() -> None:
    found = _of(check("area/slug", subject="format"), id="mine-float32-2d", tensorizer_format="mine")
    assert found == Check("area/slug", "must", "format:mine", "float32-2d")
    assert found.area == "area"
    assert found.key == "area/slug[float32-2d]@format:mine"


def test_check_without_cases() -> None:
    found = _of(check("area/slug", subject="format", level="should"), id="a-b", tensorizer_format="a-b")
    assert found == Check("area/slug", "should", "format:a-b", "")
    assert found.key == "area/slug@format:a-b"


def test_check_of_a_subject_of_which_there_is_one() -> None:
    assert _of(check("a/b", subject="engine"), id="llama") == Check("a/b", "must", "engine:transformers", "llama")
    assert _of(check("a/b", subject="prompt-embeds")).subject == "prompt-embeds:reference"


def test_any_other_test_is_no_check() -> None:
    assert _of() is None


def test_a_check_of_a_format_takes_one() -> None:
    with pytest.raises(pytest.UsageError, match=r"test_x.py::test_y is a check of a format.*`tensorizer_format`"):
        _of(check("a/b", subject="format"))


@pytest.mark.parametrize(
    ("id", "subject", "level"),
    [("slug", "format", "must"), ("a/b/c", "format", "must"), ("a/b", "model", "must"), ("a/b", "format", "may")],
)
def test_arguments_are_checked_at_once(id: str, subject: str, level: str) -> None:
    with pytest.raises(ValueError, match=r"area/slug, the subject one of format, engine.*one of must, should, info"):
        check(id, subject=subject, level=level)


def test_a_repository_has_checks_of_its_own(repository: Any) -> None:
    """They are judged and counted with the suite's."""
    repository.write(
        "test_own.py",
        "from pytest_tensorizer.suite.check import check\n"
        "@check('own/suffix', subject='format')\n"
        "def test_suffix(tensorizer_format):\n    '''Its suffix is its name.'''\n"
        "    assert tensorizer_format.suffix == '.' + tensorizer_format.name\n",
    )
    formats = [f"--tensorizer-format=mine:{name}" for name in ("Mine", "Lossy")]
    run = repository.run("test_own.py", "tensorizer-conformance/test_storage.py::test_missing[mine-local]", *formats)
    assert run.outcomes == {"passed": 2, "failed": 1}, run.out
    assert "FAILS   own/suffix  lossy" in run.summary
    assert "1 failed, 2 passed" in run.summary
