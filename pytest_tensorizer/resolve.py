"""Turning `package.module:attribute`, as people write it on a command line, into the object."""

from __future__ import annotations

import importlib


class TargetError(ValueError):
    """A `package.module:attribute` that leads nowhere. The message says which part, and what to write instead."""


def load_target(target: str, *, what: str, builtin: tuple[str, ...] = ()) -> object:
    """Import the object that `target` (`package.module:attribute`) names.

    `what` says in the error message what was being looked for ("format"), and `builtin` lists the short names
    that would have been understood as well. An error inside the imported module is not hidden: it is raised as
    it is.

    Raises:
        TargetError: the form is wrong, or there is no such module or attribute.
    """
    module_name, separator, attribute = target.partition(":")
    if not (separator and module_name and attribute):
        choice = f"use one of {', '.join(builtin)}, or " if builtin else ""
        raise TargetError(f"no {what} is called {target!r}: {choice}name your own as package.module:attribute")
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # Only where the module asked for is the missing one: a failing import inside it is a bug to be shown.
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise
        raise TargetError(
            f"{what} {target!r}: there is no module {error.name!r}. Run from the directory that holds it, "
            "or put that on PYTHONPATH"
        ) from None
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise TargetError(f"{what} {target!r}: {module_name!r} has no attribute {attribute!r}")
        found = getattr(found, part)
    return found


def instantiate(found: object) -> object:
    """An object of `found` where that is a class that needs no arguments, else `found` itself."""
    return found() if isinstance(found, type) else found


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
    names = metadata.packages_distributions().get(top, [])
    return distribution_version(names[0]) if names else "unknown"
