"""Tensors, and their specifications."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument
from torch import Tensor

from pytest_tensorizer.strategies import arguments, words
from pytest_tensorizer.strategies import strides as lies
from pytest_tensorizer.strategies.arguments import Argument
from pytest_tensorizer.strategies.code import built
from pytest_tensorizer.strategies.dense import Dense
from pytest_tensorizer.strategies.dtypes import PACKED, all_dtypes, is_float
from pytest_tensorizer.strategies.shapes import shapes
from pytest_tensorizer.strategies.sparse import LAYOUTS, sparse_tensors
from pytest_tensorizer.strategies.words import Element

ELEMENTS = ("readable", "special", "bits")
VIEWS = ("plain", "conj", "neg")

# What lies in memory: a few words, which begin again when they are used up. How many has nothing to do with the shape,
# so that a failure that is in the values stays there while Hypothesis makes the shape smaller.
_BYTES = st.binary(max_size=24)
_DRAWN = 13

# The same choices for every dtype and shape, which take the one for as simple as the other if it has fewer of them.
_CHOICE = st.sampled_from(range(32))
_KIND = st.sampled_from(range(len(lies.KINDS)))
_VARIANT = st.sampled_from(range(lies.VARIANTS))
_MODES = ("readable", "special", "special", "bits")
# The plain one more often, as it is in life.
_FLOAT_VIEWS = ("plain",) * 5 + ("neg",) * 3
_COMPLEX_VIEWS = ("plain",) * 5 + ("conj",) * 3
# Of other dtypes nobody can say what such a view shows: torch cannot negate them, or makes a signalling NaN a quiet one
# (halves), or lets it depend on the number of elements whether -0.0 becomes 0.0 (complex numbers).
_NEGATED = frozenset({torch.float32, torch.float64})
_CONJUGATED = frozenset({torch.complex64, torch.complex128})


def tensors(
    dtype: torch.dtype | st.SearchStrategy[torch.dtype] | None = None,
    shape: tuple[int, ...] | st.SearchStrategy[tuple[int, ...]] | None = None,
    *,
    elements: Element | st.SearchStrategy[Element] | None = None,
    layout: torch.layout | st.SearchStrategy[torch.layout] = torch.strided,
    strides: str | tuple[int, ...] | st.SearchStrategy[Any] | None = None,
    view: str | st.SearchStrategy[str] | None = None,
    requires_grad: bool | st.SearchStrategy[bool] = False,
    cls: type[Tensor] | st.SearchStrategy[type[Tensor]] = Tensor,
) -> st.SearchStrategy[Tensor]:
    """A tensor on the CPU. Each argument is a value or a strategy; None means anything.

    Args:
        dtype: of the tensor.
        shape: a tuple of sides.
        elements: a number, "nan", "inf", "-inf", or bits as "0x7fc00001", or a strategy of them, from which the first
            13 elements of the storage are drawn, and the others repeat these. Or which kind to draw: "readable" (small
            numbers), "special" (NaNs with payloads, infinities, subnormals, -0.0, ends of ranges, bools of odd bytes),
            "bits" (any). None mixes these.
        layout: torch.strided or a sparse layout. A sparse tensor takes dtype and shape only, and `sparse_tensors` gives
            it with its dense value.
        strides: one of `STRIDES` ("contiguous", "transposed", "expanded", …), or a tuple with the strides in elements.
            A drawn shape that cannot have them is drawn again.
        view: "plain", "conj" or "neg": whether the tensor shows other elements than lie in memory.
        requires_grad: True is for floating-point and complex dtypes. Where it is drawn, the others do without.
        cls: Tensor, nn.Parameter, nn.Buffer or a subclass of Tensor.

    Raises:
        InvalidArgument: an argument makes no sense, or does not go with another one.
    """
    which = Argument(layout, _layout, optional=False)
    if which.value in LAYOUTS:
        given = (("elements", elements, None), ("strides", strides, None), ("view", view, None),
                 ("requires_grad", requires_grad, False), ("cls", cls, Tensor))  # fmt: skip
        for name, value, default in given:
            if value is not default:
                raise InvalidArgument(f"{name}={value!r} does not go with layout={layout}: leave it out")
        return built(sparse_tensors(dtype, shape, layout=which.value))
    dense = tensor_specs(
        dtype, shape, elements=elements, strides=strides, view=view, requires_grad=requires_grad, cls=cls
    )
    if which.value is torch.strided:
        return built(dense)
    return _of_layout(which, dense, dtype, shape)


def tensor_specs(
    dtype: Any = None,
    shape: Any = None,
    *,
    elements: Any = None,
    strides: Any = None,
    view: Any = None,
    requires_grad: Any = False,
    cls: Any = Tensor,
) -> st.SearchStrategy[Dense]:
    """The specification of a strided tensor, which `build()` makes: see `tensors` for arguments and errors.

    Other than the tensor itself it can be pickled and read, and it knows the elements that the tensor has to have.
    """
    drawing = _Drawing(
        dtype=Argument(dtype, arguments.one_of_type("dtype", torch.dtype)),
        shape=Argument(shape, arguments.shape),
        elements=_Elements(elements),
        strides=Argument(strides, _strides),
        view=Argument(view, _view),
        requires_grad=Argument(requires_grad, arguments.one_of_type("requires_grad", bool), optional=False),
        cls=Argument(cls, _class, optional=False),
    )
    kind, view_value = drawing.strides.value, drawing.view.value
    drawing.check(drawing.dtype.value, drawing.shape.value, kind, view_value)
    if drawing.dtype.value is None and not drawing.dtype.is_drawn and not drawing.dtypes(kind, view_value):
        given = {"elements": elements, "strides": strides, "view": view, "requires_grad": requires_grad or None}
        shown = ", ".join(f"{name}={value!r}" for name, value in given.items() if value is not None)
        raise InvalidArgument(f"there is no dtype that goes with {shown}")
    return _specs(drawing)


@st.composite
def _specs(draw: st.DrawFn, drawing: _Drawing) -> Dense:
    return drawing.draw(draw)


@dataclass(frozen=True)
class _Drawing:
    """The arguments of `tensor_specs`, and how a specification is drawn from them."""

    dtype: Argument
    shape: Argument
    elements: _Elements
    strides: Argument
    view: Argument
    requires_grad: Argument
    cls: Argument

    def check(self, dtype: torch.dtype | None, shape: tuple[int, ...] | None, kind: Any, view: str | None) -> None:
        """Raise InvalidArgument if these do not go together, or with other arguments, as far as they are known."""
        if dtype is not None:
            if view is not None and view not in _views(dtype):
                raise InvalidArgument(f"view={view!r} does not go with dtype={dtype}")
            if self.requires_grad.value and not is_float(dtype):
                raise InvalidArgument(f"requires_grad=True does not go with dtype={dtype}: give a floating-point one")
            if kind not in (None, "contiguous") and dtype in PACKED:
                raise InvalidArgument(f"strides={kind!r} does not go with dtype={dtype}, whose elements share bytes")
            self.elements.check(dtype)
        if shape is not None and kind is not None and not _has(shape, kind):
            raise InvalidArgument(f"strides={kind!r} does not go with shape={shape}")

    def dtypes(self, kind: Any, view: str | None) -> list[torch.dtype]:
        """Those that go with these, and with the other arguments."""
        return [dtype for dtype in all_dtypes() if _passes(self.check, dtype, None, kind, view)]

    def draw(self, draw: st.DrawFn) -> Dense:
        # These come first if they are given, so that the dtype and the shape can be drawn to go with them.
        kind, view = self.strides.draw(draw), self.view.draw(draw)
        dtype = self.dtype.draw(draw, _any_dtype(self, kind, view))
        shape = self.shape.draw(draw, _any_shape(kind))
        choice = draw(_CHOICE)
        data = self.elements.draw(draw, dtype, _MODES[choice % len(_MODES)])
        if kind is None:
            kinds = lies.KINDS[:1] if dtype in PACKED else lies.possible(shape)
            kind = kinds[draw(_KIND) % len(kinds)]
        if view is None:
            view = _views(dtype)[choice // len(_MODES)]
        grad = self.requires_grad.draw(draw)
        if self.requires_grad.is_drawn:
            grad = grad and is_float(dtype)
        cls = self.cls.draw(draw)
        if self.strides.is_drawn:
            assume(_has(shape, kind) and (kind == "contiguous" or dtype not in PACKED))
        if self.view.is_drawn:
            assume(view in _views(dtype))
        self.check(dtype, shape, kind, view)
        if isinstance(kind, tuple):
            strides, offset, size = kind, 0, None
        elif kind == "contiguous":
            strides, offset, size = None, 0, None
        else:
            variant = draw(_VARIANT) if kind in lies.VARIED else 0
            strides, offset, size = lies.lie(shape, kind, variant)
        return Dense(
            dtype,
            shape,
            data,
            strides,
            offset,
            size,
            conj=view == "conj",
            neg=view == "neg",
            requires_grad=grad,
            cls=cls,
        )  # fmt: skip


@lru_cache(256)
def _any_dtype(drawing: _Drawing, kind: Any, view: str | None) -> st.SearchStrategy[torch.dtype]:
    return st.sampled_from(drawing.dtypes(kind, view))


@lru_cache(256)
def _any_shape(kind: Any) -> st.SearchStrategy[tuple[int, ...]]:
    if isinstance(kind, tuple):
        return shapes(min_dims=len(kind), max_dims=len(kind))
    if kind == "channels-last":
        return shapes(min_dims=4, max_dims=5)
    return shapes() if kind is None else shapes().filter(lambda shape: _has(shape, kind))


class _Elements:
    """What to draw the data of a storage from."""

    def __init__(self, wanted: Any) -> None:
        self._wanted = wanted
        self._mode = wanted if wanted in ELEMENTS else None
        self._strategy = wanted if isinstance(wanted, st.SearchStrategy) else None
        self._element = None if wanted in (self._mode, self._strategy) else wanted

    def __repr__(self) -> str:
        return repr(self._wanted)

    def check(self, dtype: torch.dtype) -> None:
        if self._element is not None:
            self._words(dtype, [self._element])

    def draw(self, draw: st.DrawFn, dtype: torch.dtype, mode: str) -> bytes:
        if self._element is not None:
            return self._words(dtype, [self._element])
        if self._strategy is not None:
            return self._words(dtype, draw(st.lists(self._strategy, min_size=1, max_size=_DRAWN)))
        mode = self._mode or mode
        data = draw(_BYTES)
        if mode == "bits":
            return data + bytes(-len(data) % dtype.itemsize)
        choice = words.palette(dtype) if mode == "special" else words.readable(dtype)
        count = len(choice)
        return b"".join([choice[byte % count] for byte in data])

    @staticmethod
    def _words(dtype: torch.dtype, elements: list[Element]) -> bytes:
        try:
            return words.words(dtype, elements)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"elements of dtype={dtype}: {error}") from None


def _of_layout(which: Argument, dense: st.SearchStrategy[Dense], dtype: Any, shape: Any) -> st.SearchStrategy[Tensor]:
    @st.composite
    def tensors(draw: st.DrawFn) -> Tensor:
        layout = which.draw(draw)
        specs = dense if layout is torch.strided else sparse_tensors(dtype, shape, layout=layout)
        tensor: Tensor = draw(built(specs))
        return tensor

    return tensors()


def _passes(check: Callable[..., None], *args: object) -> bool:
    try:
        check(*args)
    except InvalidArgument:
        return False
    return True


def _has(shape: tuple[int, ...], kind: str | tuple[int, ...]) -> bool:
    return len(kind) == len(shape) if isinstance(kind, tuple) else kind in lies.possible(shape)


def _views(dtype: torch.dtype) -> tuple[str, ...]:
    """The views that `dtype` can have, each as often as it is to be drawn."""
    if dtype in _NEGATED:
        return _FLOAT_VIEWS
    return _COMPLEX_VIEWS if dtype in _CONJUGATED else ("plain",) * 8


def _strides(value: Any) -> Any:
    if isinstance(value, tuple):
        for stride in value:
            if isinstance(stride, bool) or not isinstance(stride, int) or stride < 0:
                raise InvalidArgument(f"strides={value!r} has the stride {stride!r}: give ints of at least 0")
    elif value not in lies.KINDS:
        raise InvalidArgument(
            f"strides={value!r} is no kind of strides: give one of {', '.join(lies.KINDS)}, or a tuple"
        )
    return value


def _view(value: Any) -> Any:
    if value not in VIEWS:
        raise InvalidArgument(f"view={value!r} is none of {', '.join(VIEWS)}")
    return value


def _class(value: Any) -> Any:
    if not (isinstance(value, type) and issubclass(value, Tensor)):
        raise InvalidArgument(f"cls={value!r} is no subclass of torch.Tensor")
    return value


def _layout(value: Any) -> Any:
    if value is not torch.strided and value not in LAYOUTS:
        raise InvalidArgument(f"layout={value!r} is none of torch.strided, {', '.join(map(str, LAYOUTS))}")
    return value
