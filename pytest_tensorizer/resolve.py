"""Turning `package.module:attribute`, as people write it on a command line, into the object."""

from __future__ import annotations

import importlib
import traceback
from typing import Any


class TargetError(ValueError):
    """A `package.module:attribute` that leads nowhere. The message says which part, and what to write instead."""


def load_target(target: str, *, what: str, builtin: tuple[str, ...] = ()) -> object:
    """Import the object that `target` (`package.module:attribute`) names.

    `what` says in the error message what was being looked for ("format"), and `builtin` lists the short names
    that would have been understood as well.

    Raises:
        TargetError: the form is wrong, there is no such module or attribute, or importing it fails. What it failed
            with is then the cause, and stands in the message.
    """
    module_name, separator, attribute = target.partition(":")
    if not (separator and module_name and attribute):
        choice = f"use one of {', '.join(builtin)}, or " if builtin else ""
        raise TargetError(f"no {what} is called {target!r}: {choice}name your own as package.module:attribute")
    try:
        found: object = importlib.import_module(module_name)
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is None or not (module_name + ".").startswith(missing + "."):
            # The module is there, and it or what it imports is broken.
            raise TargetError(f"{what} {target!r}: importing {module_name!r} fails: {told(error)}") from error
        raise TargetError(
            f"{what} {target!r}: there is no module {missing!r}. Run from the directory that holds it, "
            "or put that on PYTHONPATH"
        ) from None
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise TargetError(f"{what} {target!r}: {module_name!r} has no attribute {attribute!r}")
        found = getattr(found, part)
    return found


def instantiate(found: object) -> object:
    """An object of `found` where that is a class, else `found` itself.

    Raises:
        TargetError: the class cannot be called without arguments.
    """
    if not isinstance(found, type):
        return found
    try:
        return found()
    except Exception as error:
        raise TargetError(
            f"{found.__module__}.{found.__qualname__}() fails: {told(error)}. Name an object, or a class that needs "
            "no arguments"
        ) from error


def implementing(found: object, parts: tuple[str, ...], *, where: str, protocol: str) -> Any:
    """`found`, if it has the `parts` of a protocol. `where` says in the message where it comes from.

    Raises:
        TargetError: it lacks some, or is a class of such objects.
    """
    lacking = [part for part in parts if not hasattr(found, part)]
    if lacking:
        raise TargetError(f"{where} is {found!r}, which lacks {', '.join(lacking)}: implement {protocol}")
    if isinstance(found, type):
        raise TargetError(f"{where} is {found!r}, which is a class: give an object")
    return found


def told(error: BaseException) -> str:
    """The error in a line, and where it was raised: "KeyError: 'x' (mine.py, line 7)"."""
    if isinstance(error, SyntaxError):
        where = f"{error.filename}, line {error.lineno}"
        return f"{type(error).__name__}: {error.msg} ({where})"
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({last.filename}, line {last.lineno})"


def distribution_version(name: str) -> str:
    """The installed version of the distribution `name`, or "unknown"; imports nothing of it."""
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"


def module_version(found: object) -> str:
    """The version of the distribution whose module defines the class of `found`, or "unknown"."""
    from importlib import metadata

    owner = found if isinstance(found, type) or hasattr(found, "__qualname__") else type(found)
    top = (getattr(owner, "__module__", "") or "").partition(".")[0]
    if top == __name__.partition(".")[0]:
        return distribution_version("pytest-tensorizer")  # what comes next reads the files of all distributions
    names = metadata.packages_distributions().get(top, [])
    return distribution_version(names[0]) if names else "unknown"
