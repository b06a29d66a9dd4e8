"""Fixtures by which a repository chooses its own subjects: where they work, and where they would silently not."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from pytest_tensorizer.options import Settings

OVERRIDABLE = {
    "tensorizer_formats": "format",
    "tensorizer_engine": "engine",
    "tensorizer_prompt_embeds_loader": "prompt-embeds",
}
"""Fixtures that choose a subject, and the option that does the same."""


def visible(config: pytest.Config) -> frozenset[str]:
    """The names of the fixtures that the root conftest, or a plugin of the user's, overrides for the suite.

    The suite's tests stand directly below the session, so a conftest further down is not theirs.
    """
    root = config.rootpath
    return frozenset(
        name for name, path in _loaded(config) if path is None or path.parent == root or root not in path.parents
    )


def check(config: pytest.Config, settings: Settings) -> None:
    """Refuse what would test another subject than the user means.

    Raises:
        pytest.UsageError: a conftest that the suite cannot see overrides a subject that nothing else chooses, or an
            option and a fixture both choose one. Nobody who wrote such a conftest expects the default to be tested.
    """
    seen = visible(config)
    strays = [] if config.getoption("noconftest") else [*_loaded(config), *_unloaded(config)]
    for name, path in strays:
        if name not in seen and OVERRIDABLE[name] not in settings.explicit and path is not None:
            root = config.rootpath / "conftest.py"
            mend = f"start pytest below {root.parent}" if path == root else f"move it to {root}"
            raise pytest.UsageError(
                f"{path} overrides the fixture {name!r}, which the conformance suite cannot see from there: {mend}, "
                f"or name the subject with --tensorizer-{OVERRIDABLE[name]}"
            )
    for name in sorted(seen):
        if OVERRIDABLE[name] in settings.explicit:
            raise pytest.UsageError(
                f"--tensorizer-{OVERRIDABLE[name]} is given, and a conftest or plugin overrides the fixture {name!r}, "
                "which would win: keep one of the two"
            )


def _loaded(config: pytest.Config) -> Iterator[tuple[str, Path | None]]:
    """(fixture, conftest) of the conftests that are loaded; the path is None for any other plugin."""
    for plugin in config.pluginmanager.get_plugins():
        if getattr(plugin, "__name__", "") == "pytest_tensorizer.plugin":
            continue
        file = getattr(plugin, "__file__", None) or ""
        holders = (*reversed(type(plugin).__mro__), plugin)
        attributes = {name: value for holder in holders for name, value in getattr(holder, "__dict__", {}).items()}
        for attribute, value in attributes.items():
            # The class is private to pytest, and has been renamed before.
            if "fixture" in type(value).__name__.lower():
                name = getattr(value, "name", attribute)
                if name in OVERRIDABLE:
                    yield name, Path(file) if file.endswith("conftest.py") else None


def _unloaded(config: pytest.Config) -> Iterator[tuple[str, Path]]:
    """(fixture, conftest) by reading every conftest below the root: most are not loaded when only the suite runs."""
    # A repository that collects nothing by itself ("*") still has its conftests.
    skipped = {*config.getini("norecursedirs"), "node_modules", "__pycache__"} - {"*"}
    for directory, subdirectories, files in os.walk(config.rootpath):
        subdirectories[:] = [
            name
            for name in subdirectories
            if not any(fnmatch(name, pattern) for pattern in skipped)
            and not os.path.exists(os.path.join(directory, name, "pyvenv.cfg"))
        ]
        if "conftest.py" in files:
            path = Path(directory, "conftest.py")
            for name in _fixtures_in(path):
                yield name, path


def _fixtures_in(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8", errors="replace")
    if not any(name in text for name in OVERRIDABLE):
        return
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return  # pytest itself says so when it loads the file
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            yield from {alias.asname or alias.name for alias in node.names} & OVERRIDABLE.keys()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            decorators = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
            named = next((name for name in OVERRIDABLE if name == node.name or f"name='{name}'" in decorators), None)
            if named and "fixture" in decorators:
                yield named
