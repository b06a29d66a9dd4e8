"""Skips that say what is missing, so that a report can tell "not claimed" from "not there"."""

from __future__ import annotations

from typing import NoReturn

import pytest


class Skip(pytest.skip.Exception):  # type: ignore[name-defined,misc]
    """A skip with its reason in parts. `kind` is "capability" or "requirement", `missing` the name of what is."""

    # As pytest's own class calls itself, so that a report shows the reason and not where this class stands.
    __module__ = "builtins"
    __qualname__ = "Skipped"

    def __init__(self, kind: str, missing: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.missing = missing


def not_claimed(subject: str, capability: str, detail: str = "") -> NoReturn:
    """Skip: the subject does not claim the capability, which is no fault."""
    raise Skip("capability", capability, f"{subject} does not claim {capability}{f' ({detail})' if detail else ''}")


def missing(requirement: str, reason: str) -> NoReturn:
    """Skip: this machine lacks something; --tensorizer-require=REQUIREMENT makes it a failure."""
    raise Skip("requirement", requirement, f"{requirement} is missing: {reason}")
