"""Shapes, and the strides that tensors of a shape can have."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from pytest_tensorizer.strategies import STRIDES, shapes
from pytest_tensorizer.strategies import strides as lies
from tests.strategies.draws import STEADY, drawn, label


def test_all_kinds_are_drawn() -> None:
    found = drawn(shapes())
    dims = Counter(map(len, found))
    assert set(dims) >= {0, 1, 2, 3, 4, 5, 17}
    assert {side for shape in found for side in shape} == set(range(7))
    assert max(map(math.prod, found)) <= 256
    assert any(math.prod(shape) > 128 for shape in found)
    assert 30 < sum(0 in shape for shape in found) < 200
    # The sides of a long shape are not all 1.
    assert any(len(shape) > 10 and math.prod(shape) > 1 for shape in found)


@settings(STEADY, max_examples=60)
@given(st.data(), st.integers(0, 6), st.integers(0, 20), st.integers(0, 3), st.integers(0, 5), st.integers(0, 300))
def test_limits_are_kept(data: st.DataObject, least: int, more: int, side: int, wider: int, elements: int) -> None:
    limits = {"min_dims": least, "max_dims": least + more, "min_side": side, "max_side": side + wider,
              "max_elements": elements}  # fmt: skip
    if side**least > elements:
        with pytest.raises(InvalidArgument, match=f"min_dims={least} of min_side={side} are more than max_elements"):
            shapes(**limits)
        return
    for _ in range(10):
        shape = data.draw(shapes(**limits))
        assert least <= len(shape) <= least + more
        assert all(side <= length <= side + wider for length in shape), (shape, limits)
        assert math.prod(shape) <= elements, (shape, limits)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"min_dims": -1}, "min_dims=-1 is out of range: give 0 to 64"),
        ({"min_dims": 3, "max_dims": 2}, "max_dims=2 is out of range: give 3 to 64"),
        ({"max_dims": 65}, "max_dims=65 is out of range"),
        ({"max_dims": 2.5}, "max_dims=2.5 is no int"),
        ({"min_side": 7}, "max_side=6 is out of range: give 7 or more"),
        ({"min_side": True}, "min_side=True is no int"),
        ({"max_elements": -1}, "max_elements=-1 is out of range"),
        ({"min_dims": 3, "min_side": 2, "max_elements": 7}, "min_dims=3 of min_side=2 are more than max_elements=7"),
    ],
    ids=label,
)
def test_wrong_arguments_are_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        shapes(**arguments)


def as_torch_makes_it(shape: tuple[int, ...], kind: str, variant: int) -> torch.Tensor | None:
    """A tensor of this kind, by torch's own methods."""
    dims = len(shape)
    if kind == "transposed":
        order = ([*range(dims - 2), dims - 1, dims - 2], [*range(dims)][::-1], [*range(1, dims), 0])[variant]
        back = [order.index(dim) for dim in range(dims)]
        return torch.empty([shape[dim] for dim in order]).permute(back)
    if kind == "stepped":
        slices = [slice(None)] * dims
        step, chosen = ((2, [-1]), (3, [0]), (2, [dim for dim in range(dims) if shape[dim] > 1] or [-1]))[variant]
        larger = list(shape)
        for dim in chosen:
            larger[dim], slices[dim] = shape[dim] * step, slice(None, None, step)
        return torch.empty(larger)[tuple(slices)]
    if kind == "expanded":
        wide = [dim for dim in range(dims) if shape[dim] > 1]
        chosen = (wide[:1], wide[-1:], wide)[variant]
        return torch.empty([1 if dim in chosen else shape[dim] for dim in range(dims)]).expand(shape)
    if kind == "channels-last":
        return torch.empty(shape).to(memory_format=torch.channels_last if dims == 4 else torch.channels_last_3d)
    if kind == "contiguous":
        return torch.empty(shape)
    return None


def test_strides_are_those_that_torch_makes() -> None:
    seen: Counter[str] = Counter()
    for shape in {shape for shape in drawn(shapes(), 400) if 0 not in shape}:
        for kind in lies.possible(shape):
            for variant in range(lies.VARIANTS if kind in lies.VARIED else 1):
                expected = as_torch_makes_it(shape, kind, variant)
                strides, offset, size = lies.lie(shape, kind, variant)
                needed = offset + lies.extent(shape, strides)
                assert offset == (3 if kind == "offset" else 0)
                assert size == (needed + 3 if kind == "larger-storage" else None)
                torch.empty(size or needed).as_strided(shape, strides, offset)  # torch checks that it fits
                if expected is not None:
                    for dim, side in enumerate(shape):
                        assert side == 1 or strides[dim] == expected.stride(dim), (shape, kind, variant)
                    seen[kind] += 1
    assert set(seen) == {"transposed", "stepped", "expanded", "channels-last", "contiguous"}


def test_windows_overlap() -> None:
    strides, offset, size = lies.lie((3, 4), "overlapping")
    assert (strides, offset, size, lies.extent((3, 4), strides)) == ((1, 1), 0, None, 6)
    assert torch.arange(6).as_strided((3, 4), strides).tolist() == torch.arange(6).unfold(0, 4, 1).tolist()


@pytest.mark.parametrize(
    ("shape", "kinds"),
    [
        ((), {"contiguous", "offset", "larger-storage"}),
        ((0,), {"contiguous", "offset", "larger-storage", "stepped"}),
        ((1, 1), {"contiguous", "offset", "larger-storage", "stepped", "transposed"}),
        ((1, 2), {"contiguous", "offset", "larger-storage", "stepped", "transposed", "expanded"}),
        ((2, 1, 1, 2), set(STRIDES)),
    ],
    ids=label,
)
def test_kinds_of_strides_that_a_shape_can_have(shape: tuple[int, ...], kinds: set[str]) -> None:
    assert set(lies.possible(shape)) == kinds


def test_tensors_without_elements_take_no_memory() -> None:
    for shape in ((0,), (2, 0, 3)):
        for kind in lies.possible(shape):
            strides, offset, size = lies.lie(shape, kind)
            assert lies.extent(shape, strides) == 0
            assert (offset, size) == (3 * (kind == "offset"), 3 if kind == "larger-storage" else None)


def test_what_overlaps_is_known() -> None:
    """Nothing is missed: where two elements share memory, `overlaps` says so."""
    for shape in set(drawn(shapes(), 200)):
        for kind in lies.possible(shape):
            for variant in range(lies.VARIANTS):
                strides, _, _ = lies.lie(shape, kind, variant)
                places = [0]
                for side, stride in zip(shape, strides, strict=True):
                    places = [place + index * stride for place in places for index in range(side)]
                shares = len(set(places)) < len(places)
                assert lies.overlaps(shape, strides) or not shares, (shape, strides)
                if kind not in ("expanded", "overlapping"):
                    assert not lies.overlaps(shape, strides), (shape, strides)
