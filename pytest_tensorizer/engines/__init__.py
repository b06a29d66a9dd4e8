"""Who runs the model: the :class:`Engine` protocol and the reference engine."""

from __future__ import annotations

from typing import cast

from pytest_tensorizer.engines.protocol import CAPABILITIES, Engine, Generation, LoadedModel, Prompt, Sampling
from pytest_tensorizer.resolve import TargetError, instantiate, load_target

__all__ = ["BUILTIN", "CAPABILITIES", "Engine", "Generation", "LoadedModel", "Prompt", "Sampling", "resolve"]

BUILTIN = {"transformers": "pytest_tensorizer.engines.transformers:TransformersEngine"}


def resolve(name: str) -> Engine:
    """The engine called `name`: "transformers", or `package.module:attribute` (an engine, or a class of engines).

    Raises:
        TargetError: a ValueError; nothing is found under that name, or it is not an engine.
    """
    target = BUILTIN.get(name, name)
    found = instantiate(load_target(target, what="engine", builtin=tuple(BUILTIN)))
    lacking = [part for part in ("name", "capabilities", "load") if not hasattr(found, part)]
    if lacking:
        raise TargetError(
            f"engine {name!r} is {found!r}, which lacks {', '.join(lacking)}: "
            "implement pytest_tensorizer.engines.Engine"
        )
    return cast(Engine, found)
