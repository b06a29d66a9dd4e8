"""How weights become bytes and come back: the :class:`Format` protocol and the formats that come with it."""

from __future__ import annotations

from typing import cast

from pytest_tensorizer.formats.protocol import CAPABILITIES, DEFAULT_DTYPES, Format, Location, claims
from pytest_tensorizer.resolve import implementing, instantiate, load_target

__all__ = ["BUILTIN", "CAPABILITIES", "DEFAULT_DTYPES", "Format", "Location", "claims", "resolve"]

BUILTIN = {
    "tensorizer": "pytest_tensorizer.formats.tensorizer:TensorizerFormat",
    "safetensors": "pytest_tensorizer.formats.safetensors:SafetensorsFormat",
    "torch": "pytest_tensorizer.formats.torch:TorchFormat",
}


def resolve(name: str) -> Format:
    """The format called `name`: "tensorizer", "safetensors", "torch", or `package.module:attribute`.

    The attribute may be a format, or a class whose instances (made without arguments) are formats.

    Raises:
        TargetError: a ValueError; nothing is found under that name, or it is not a format.
    """
    target = BUILTIN.get(name, name)
    found = instantiate(load_target(target, what="format", builtin=tuple(BUILTIN)))
    return checked(found, where=f"format {name!r}")


def checked(found: object, *, where: str) -> Format:
    """`found`, if it is a format. Raises TargetError, which names `where`, if it is not."""
    parts = ("name", "suffix", "capabilities", "save", "load")
    return cast(Format, implementing(found, parts, where=where, protocol="pytest_tensorizer.formats.Format"))
