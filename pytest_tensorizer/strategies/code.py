"""How Hypothesis shows a drawn tensor in a falsifying example: as code, which has all of its bits."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.control import current_build_context
from hypothesis.vendor.pretty import IDKey, for_type_by_name


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


def _print_tensor(value: Any, pretty: Any, cycle: bool) -> None:
    try:
        text = repr(value)
    except (NotImplementedError, RuntimeError):
        text = f"<tensor of {value.dtype} and shape {tuple(value.shape)}>"
    for number, line in enumerate(text.splitlines()):
        if number:
            pretty.break_()
        pretty.text(line)


# Hypothesis takes the repr of all arguments of a test that fails, to compare two runs. torch has none for scalars of
# int1 and its like, and raises instead: that would stand in the place of what the test has raised.
for_type_by_name("torch", "Tensor", _print_tensor)


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
