"""Shapes: scalars, empty ones, and ones of more dimensions than anybody uses."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from pytest_tensorizer.strategies import arguments
from pytest_tensorizer.strategies.indices import indices

_USUAL_DIMS = 5
_ELEMENTS = 256
_PADDED = st.sampled_from((False,) * 15 + (True,))


def shapes(
    *, min_dims: int = 0, max_dims: int = 17, min_side: int = 0, max_side: int = 6, max_elements: int = _ELEMENTS
) -> st.SearchStrategy[tuple[int, ...]]:
    """A shape of at most `max_elements` elements.

    Most have up to five dimensions, some as many as `max_dims`. Sides are `min_side` to `max_side`, but smaller where
    the elements would be too many. Shrinks to few dimensions, and to sides of 1 rather than 0.

    Raises:
        InvalidArgument: a number is no int, or out of range; or no shape is within these limits.
    """
    arguments.integer("min_dims", min_dims, most=64)
    arguments.integer("max_dims", max_dims, least=min_dims, most=64)
    arguments.integer("min_side", min_side)
    arguments.integer("max_side", max_side, least=min_side)
    arguments.integer("max_elements", max_elements)
    if min_side**min_dims > max_elements:
        raise InvalidArgument(f"min_dims={min_dims} of min_side={min_side} are more than max_elements={max_elements}")
    while min_side**max_dims > max_elements and max_dims > min_dims:
        max_dims -= 1
    some = range(max(min_side, 1), max_side + 1)
    # Without elements nothing else can be wrong, so 0 is the rarer.
    sides = (*some, *some, 0) if min_side == 0 else tuple(some)
    usual = max(min_dims, min(max_dims, _USUAL_DIMS))
    choices = indices(len(sides), min_size=min_dims, max_size=usual)
    return _shapes(choices, sides, max_dims - usual, max_elements)


@st.composite
def _shapes(
    draw: st.DrawFn, choices: st.SearchStrategy[list[int]], sides: tuple[int, ...], padding: int, max_elements: int
) -> tuple[int, ...]:
    wanted = [sides[index] for index in draw(choices)]
    if padding and draw(_PADDED):
        wanted += sides[:1] * padding
    least = min(sides)
    shape: list[int] = []
    left = max_elements  # what the sides so far leave to the others
    for number, side in enumerate(wanted, 1):
        fits = left // max(least ** (len(wanted) - number), 1)
        side = side if side <= fits else max(least, min(fits, 1))
        left //= max(side, 1)
        shape.append(side)
    return tuple(shape)
