"""Arguments of strategies: each a value or a strategy, looked at as early as can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument


class Argument:
    """An argument that is a value, a strategy, or None for anything.

    `value` is None if it is not the first. `check` raises InvalidArgument for a value that makes no sense: at once, or
    for a drawn one when it is drawn. One that is not `optional` has a default, which is not None.
    """

    def __init__(self, value: object, check: Callable[[Any], Any], *, optional: bool = True) -> None:
        self._check = check
        self._strategy = value if isinstance(value, st.SearchStrategy) else None
        is_open = self.is_drawn or (optional and value is None)
        self.value = None if is_open else check(value)

    def __repr__(self) -> str:
        return repr(self._strategy if self.is_drawn else self.value)

    @property
    def is_drawn(self) -> bool:
        """Whether the user has given a strategy."""
        return self._strategy is not None

    def draw(self, draw: st.DrawFn, default: st.SearchStrategy[Any] | None = None) -> Any:
        """The value; where anything goes, one from `default`."""
        if self._strategy is not None:
            return self._check(draw(self._strategy))
        return draw(default) if self.value is None and default is not None else self.value


def one_of_type(name: str, *types: type) -> Callable[[Any], Any]:
    """A check that the argument `name` is of one of `types`."""

    def check(value: Any) -> Any:
        if not isinstance(value, types):
            wanted = " or ".join(t.__name__ for t in types)
            # Not the repr of a tensor, which torch lacks for some dtypes.
            is_tensor = isinstance(value, torch.Tensor)
            shown, hint = ("a tensor", " (tensor_specs() is one)") if is_tensor else (repr(value), "")
            raise InvalidArgument(f"{name}={shown} is no {wanted}: give one, or a strategy of them{hint}")
        return value

    return check


def shape(value: Any) -> tuple[int, ...]:
    """Check a shape: a sequence of sides, each an int of at least 0."""
    try:
        sides = tuple(value)
    except TypeError:
        raise InvalidArgument(f"shape={value!r} is no shape: give a tuple of ints, or a strategy of them") from None
    for side in sides:
        if isinstance(side, bool) or not isinstance(side, int) or side < 0:
            raise InvalidArgument(f"shape={value!r} has the side {side!r}: give ints of at least 0")
    return sides


def integer(name: str, value: object, *, least: int = 0, most: int | None = None) -> int:
    """Check a number that is no strategy."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(f"{name}={value!r} is no int")
    if value < least or (most is not None and value > most):
        raise InvalidArgument(
            f"{name}={value!r} is out of range: give {least}" + (f" to {most}" if most else " or more")
        )
    return value


def flag(name: str, value: object) -> None:
    """Check a bool that is no strategy."""
    if not isinstance(value, bool):
        raise InvalidArgument(f"{name}={value!r} is no bool")


def strategy(name: str, value: Any, kind: type, default: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Check an argument that has to be a strategy, or None for the default one; what it draws has to be of a `kind`."""
    if value is None:
        return default
    if not isinstance(value, st.SearchStrategy):
        raise InvalidArgument(f"{name}={value!r} is no strategy")
    return value.map(one_of_type(name, kind))
