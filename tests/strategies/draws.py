"""Draws that are the same each time, and what a person makes of their repr."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

# Health is what test_health.py looks at.
STEADY = settings(database=None, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


def drawn(strategy: SearchStrategy[Any], count: int = 600) -> list[Any]:
    """About `count` draws."""
    found: list[Any] = []

    @settings(STEADY, max_examples=count, phases=[Phase.generate])
    @given(strategy)
    def run(value: Any) -> None:
        found.append(value)

    run()
    return found


def evaluated(text: str) -> Any:
    """What `text` is to somebody who has imported everything from the package."""
    namespace: dict[str, Any] = {}
    exec("from pytest_tensorizer.strategies import *", namespace)
    return eval(text, namespace)


def label(value: object) -> str | None:
    """The part of a test's id that stands for a parameter: the same in each process, as pytest-xdist needs it."""
    text = ascii(value)
    return None if isinstance(value, (set, frozenset)) or " at 0x" in text else text
