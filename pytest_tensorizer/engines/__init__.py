"""Who runs the model: the :class:`Engine` protocol and the reference engine."""

from __future__ import annotations

from typing import cast

from pytest_tensorizer.engines.protocol import CAPABILITIES, Engine, Generation, LoadedModel, Prompt, Sampling
from pytest_tensorizer.resolve import implementing, instantiate, load_target

__all__ = ["BUILTIN", "CAPABILITIES", "Engine", "Generation", "LoadedModel", "Prompt", "Sampling", "resolve"]

BUILTIN = {"transformers": "pytest_tensorizer.engines.transformers:TransformersEngine"}


def resolve(name: str) -> Engine:
    """The engine called `name`: "transformers", or `package.module:attribute` (an engine, or a class of engines).

    Raises:
        TargetError: a ValueError; nothing is found under that name, or it is not an engine.
    """
    target = BUILTIN.get(name, name)
    found = instantiate(load_target(target, what="engine", builtin=tuple(BUILTIN)))
    return checked(found, where=f"engine {name!r}")


def checked(found: object, *, where: str) -> Engine:
    """`found`, if it is an engine. Raises TargetError, which names `where`, if it is not."""
    parts = ("name", "capabilities", "load")
    return cast(Engine, implementing(found, parts, where=where, protocol="pytest_tensorizer.engines.Engine"))
