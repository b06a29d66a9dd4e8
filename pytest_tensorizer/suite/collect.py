"""How the suite gets into a session: collectors of its own, whose ids do not depend on where the wheel lies."""

from __future__ import annotations

import importlib
import inspect
import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_tensorizer.resolve import TargetError

ROOT = "tensorizer-conformance"
PACKAGE = "pytest_tensorizer.conformance"
REGISTRY = "known_issues.toml"
"""The "file" of the failures that stand for stale entries of the registry."""


def modules() -> dict[str, Path]:
    """File name -> path of the test modules of the suite, without importing one."""
    directory = Path(next(iter(importlib.import_module(PACKAGE).__path__)))
    return {path.name: path for path in sorted(directory.glob("test_*.py"))}


@dataclass(frozen=True)
class Selection:
    """Which part of the suite was asked for: arguments of the form `tensorizer-conformance[/file[::name]]`."""

    arguments: tuple[str, ...]

    @staticmethod
    def is_suite(argument: str) -> bool:
        return argument.partition("::")[0].rstrip("/").split("/")[0] == ROOT

    @classmethod
    def canonical(cls, argument: str, root: Path, start: Path) -> str:
        """The id that `argument` means: below the root directory, pytest shows `../tensorizer-conformance/…`."""
        path, separator, name = argument.partition("::")
        found = os.path.relpath(start / path, root).replace(os.sep, "/") + separator + name
        return found if cls.is_suite(found) else argument

    @property
    def is_whole(self) -> bool:
        return any(_split(argument) == ("", "") for argument in self.arguments)

    def has_file(self, name: str) -> bool:
        return any(file in ("", name) for file, _ in map(_split, self.arguments))

    def has(self, file: str, name: str) -> bool:
        """Whether a test called `name` ("test_bits[…]") of `file` is wanted."""
        function = name.partition("[")[0]
        return any(f in ("", file) and n in ("", name, function) for f, n in map(_split, self.arguments))

    def has_id(self, nodeid: str) -> bool:
        return self.has(*_split(nodeid))

    def unmatched(self, nodeids: Iterable[str]) -> list[str]:
        """The arguments that match none of the collected ids."""
        ids = list(nodeids)
        return [argument for argument in self.arguments if not any(map(Selection((argument,)).has_id, ids))]


def _split(argument: str) -> tuple[str, str]:
    """("test_x.py", "test_y[a]") of an argument or node id; "" for what it does not say."""
    path, _, name = argument.partition("::")
    return path.rstrip("/").removeprefix(ROOT).lstrip("/"), name


class Suite(pytest.Collector):
    """The root of the suite, a child of the session as a directory would be."""

    def __init__(self, *, selection: Selection, **kwargs: Any) -> None:
        super().__init__(nodeid=ROOT, **kwargs)
        self._selection = selection

    @classmethod
    def of(cls, session: pytest.Session, selection: Selection) -> Suite:
        path = Path(next(iter(importlib.import_module(PACKAGE).__path__)))
        return cls.from_parent(session, name=ROOT, path=path, selection=selection)

    def collect(self) -> Iterator[pytest.Collector]:
        for name, path in modules().items():
            if self._selection.has_file(name):
                yield SuiteModule.from_parent(self, path=path, nodeid=f"{ROOT}/{name}", selection=self._selection)


class SuiteModule(pytest.Module):
    """A test module of the suite. No ini option of the user's repository has a say in what is a test here."""

    def __init__(self, *, selection: Selection, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._selection = selection
        # The verdict is about subjects. It must not depend on which warnings this repository turns into errors,
        # nor on credentials that lie about.
        self.add_marker(pytest.mark.filterwarnings("ignore"))
        self.add_marker(pytest.mark.usefixtures("tensorizer_hidden_credentials"))

    def _getobj(self) -> object:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(f"{PACKAGE}.{self.path.stem}")

    def funcnamefilter(self, name: str) -> bool:
        return name.startswith("test_")

    def classnamefilter(self, name: str) -> bool:
        return False

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        for node in super().collect():
            if self._selection.has(self.path.name, node.name):
                _ignore_ini_fixtures(node)
                yield node


def _ignore_ini_fixtures(item: Any) -> None:
    """Free a test of the fixtures that `usefixtures` in the ini file wants for every test of the repository.

    They may stand in a conftest that the suite cannot see.
    """
    unwanted = {*item.config.getini("usefixtures")} - inspect.signature(item.function).parameters.keys()
    item.fixturenames[:] = [name for name in item.fixturenames if name not in unwanted]


class StaleIssue(pytest.Item):
    """The failure of an entry in the registry that matches no check of this run."""

    def __init__(self, *, message: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._message = message

    @classmethod
    def of(cls, session: pytest.Session, id: str, message: str) -> StaleIssue:
        return cls.from_parent(session, name=id, nodeid=f"{ROOT}/{REGISTRY}::{id}", message=message)

    def runtest(self) -> None:
        pytest.fail(self._message, pytrace=False)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


def fixture_values(session: pytest.Session, names: list[str]) -> dict[str, Any]:
    """The values that the fixtures `names` have for the suite, through pytest's own set-up of a test.

    Raises:
        TargetError: one of them fails, or skips.
    """
    holder: dict[str, Any] = {}
    source = f"def subjects({', '.join(names)}):\n    holder.update(locals())\n"
    namespace: dict[str, Any] = {"holder": holder}
    exec(source, namespace)  # a function with just these arguments; the names are ours
    suite = Suite.of(session, Selection(()))
    item = pytest.Function.from_parent(suite, name="subjects", callobj=namespace["subjects"])
    _ignore_ini_fixtures(item)
    runner: Any = session.config.pluginmanager.get_plugin("runner")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # With reports, which nobody sees: fixtures such as tmp_path look into them when they are torn down.
        reports: list[pytest.TestReport] = runner.runtestprotocol(item, log=False, nextitem=None)
    for report in reports:
        if not report.passed:
            raise TargetError(f"the fixtures that choose the subjects, {', '.join(names)}:\n{report.longreprtext}")
    return holder
