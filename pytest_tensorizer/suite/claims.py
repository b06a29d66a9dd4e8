"""How a check treats what a format does not claim, and what a machine does not have."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes.util import find_library

from pytest_tensorizer.formats import Format, claims
from pytest_tensorizer.suite.skips import missing, not_claimed


def need(format: Format, capability: str) -> None:
    """Skip where `format` does not claim `capability`, or claims it and this machine lacks what it needs."""
    if not claims(format, capability):
        not_claimed(format.name, capability)
    requirement = lacking(format, capability)
    if requirement:
        missing(requirement, f"{format.name} needs it for {capability}")


def lacking(format: Format, capability: str) -> str | None:
    """The program or library that `format` needs for `capability` and that is not on this machine."""
    requirement: str | None = getattr(format, "requirements", {}).get(capability)
    if requirement is None or shutil.which(requirement) or find_library(requirement.removeprefix("lib")):
        return None
    return requirement


@contextmanager
def may_refuse(format: Format, *capabilities: str) -> Iterator[None]:
    """A block in which `format` may raise what it likes if it does not claim all of `capabilities`.

    That is then a skip. What it does accept, claimed or not, has to be right, so compare after the block.
    """
    unclaimed = [capability for capability in capabilities if not claims(format, capability)]
    try:
        yield
    except Exception as error:
        if not unclaimed:
            raise
        not_claimed(format.name, " and ".join(unclaimed), f"{type(error).__name__}: {error}")
