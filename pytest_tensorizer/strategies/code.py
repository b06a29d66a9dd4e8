"""How Hypothesis shows a drawn tensor in a falsifying example: as code, which has all of its bits."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.control import current_build_context
from hypothesis.vendor.pretty import IDKey


class Code:
    """A specification: its repr is code, and Hypothesis shows it just so."""

    def _repr_pretty_(self, pretty: Any, cycle: bool) -> None:
        pretty.text(repr(self))


def show_as(value: object, code: object) -> None:
    """In a falsifying example of this test case, show `value` as `build(code)`.

    Hypothesis does this by itself for `.map(build)`, but prefers the repr of the value where that is shorter, and that
    of a tensor leaves out strides, flags and the payload of a NaN.
    """

    def printer(value: object, pretty: Any, cycle: bool) -> None:
        pretty.text("build(")
        pretty.pretty(code)
        pretty.text(")")

    current_build_context().known_object_printers[IDKey(value)].append(printer)


@st.composite
def built(draw: st.DrawFn, specs: st.SearchStrategy[Any]) -> Any:
    """What drawn specifications stand for."""
    spec = draw(specs)
    value = spec.build()
    show_as(value, spec)
    return value


def build(spec: Any) -> Any:
    """What a specification stands for: `spec.build()`."""
    return spec.build()
