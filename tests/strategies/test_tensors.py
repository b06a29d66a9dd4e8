"""Tensors: all kinds are drawn, arguments are kept or refused at once, and a falsifying example is code."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument
from torch import Tensor, nn

from pytest_tensorizer.strategies import STRIDES, Coo, Dense, Subclass, shapes, tensor_specs, tensors, words
from pytest_tensorizer.strategies import strides as lies
from pytest_tensorizer.strategies.dtypes import all_dtypes
from tests.strategies.draws import STEADY, drawn, evaluated, label


@pytest.fixture(scope="module")
def specs() -> list[Dense]:
    return drawn(tensor_specs())


def test_all_kinds_are_drawn(specs: list[Dense]) -> None:
    assert len(specs) == 600
    traits = Counter(trait for spec in specs for trait in spec.traits)
    wanted = {"conj", "neg", "scalar", "empty", "many-dims", "offset", "larger-storage", "noncontiguous"}
    assert wanted <= set(traits)
    dtypes = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    assert {spec.dtype for spec in specs} == dtypes == set(all_dtypes())
    assert {len(spec.shape) for spec in specs} >= {0, 1, 2, 3, 4, 5, 17}
    # Most are what a tensor is in life.
    assert traits["many-dims"] < 100
    assert traits["empty"] < 200
    assert sum(math.prod(spec.shape) > 1 for spec in specs) > 300


def test_all_kinds_of_strides_are_drawn(specs: list[Dense]) -> None:
    seen: Counter[str] = Counter()
    for spec in specs:
        for kind in lies.possible(spec.shape):
            for variant in range(lies.VARIANTS if kind in lies.VARIED else 1):
                if spec.strides and lies.lie(spec.shape, kind, variant) == (spec.strides, spec.offset, spec.size):
                    # Of a matrix, to reverse all dimensions is to swap the last two: so not every variant differs.
                    seen[f"{kind}-{variant}"] += 1
        seen["contiguous"] += spec.strides is None
    assert {name.split("-")[0] for name in seen} == {kind.split("-")[0] for kind in STRIDES}
    assert {f"{kind}-{variant}" for kind in lies.VARIED for variant in range(lies.VARIANTS)} <= set(seen)
    assert seen["contiguous"] > 100


def test_tensors_are_what_specifications_build() -> None:
    found = drawn(tensors(), 600)
    assert {tensor.dtype for tensor in found} == set(all_dtypes())
    assert all(type(tensor) is Tensor and tensor.device.type == "cpu" and tensor.is_leaf for tensor in found)
    packed = (torch.quint4x2, torch.quint2x4)
    assert any(not tensor.is_contiguous() for tensor in found)
    assert any(tensor.is_conj() for tensor in found)
    assert any(tensor.is_neg() for tensor in found)
    assert any(tensor.storage_offset() for tensor in found)
    sized = [tensor for tensor in found if tensor.is_contiguous() and tensor.dtype not in packed]
    assert any(tensor.untyped_storage().nbytes() > tensor.numel() * tensor.itemsize for tensor in sized)


SPECIAL: dict[torch.dtype, set[Any]] = {
    torch.float32: {"0x7fc00005", "0x7f800001", "0xffc00000", "inf", "-inf", -0.0, "0x00000001", "0x007fffff"},
    torch.bfloat16: {"nan", "0x7fc5", "0x7f81", "0xffc0", "inf", "-inf", -0.0, "0x0001", "0x7f7f"},
    torch.float16: {"nan", "0x7e05", "0x7c01", "0xfe00", "inf", "-inf", -0.0, "0x0001", "0x7bff"},
    torch.float64: {"nan", "0x7ff8000000000005", "0x7ff0000000000001", "inf", "-inf", -0.0, 5e-324},
    torch.complex64: {"0x000000007f800001", "0x7f80000100000000", "0x7fc000057fc00005", "0x8000000080000000"},
    torch.bool: {False, True, "0x02", "0x80", "0xff"},
    torch.int32: {0, 1, -1, 2**31 - 1, -(2**31)},
    torch.uint64: {0, 1, 2**63, 2**64 - 1},
    torch.int8: set(range(-128, 128)),
    torch.float8_e4m3fn: {"0x7f", "0xff", "0x01", "0x80"},
}


@pytest.mark.parametrize("dtype", SPECIAL, ids=label)
def test_special_elements(dtype: torch.dtype) -> None:
    """What a copy by way of numbers changes: payloads of NaNs, signalling ones, -0.0, odd bytes of bools, …"""
    found: set[bytes] = set()
    for spec in drawn(tensor_specs(dtype, (4, 5), elements="special", strides="contiguous", view="plain"), 600):
        found |= {spec.storage()[start : start + dtype.itemsize] for start in range(0, 20, dtype.itemsize)}
    missing = {element for element in SPECIAL[dtype] if words.word(dtype, element) not in found}
    assert not missing


def test_readable_elements_and_bits() -> None:
    for dtype in all_dtypes():
        readable = {*words.readable(dtype), bytes(dtype.itemsize)}  # where nothing was drawn, all bits are 0
        for spec in drawn(tensor_specs(dtype, (3,), elements="readable", strides="contiguous", view="plain"), 20):
            assert {spec.elements()[i : i + dtype.itemsize] for i in range(0, 3, dtype.itemsize)} <= readable
    floats = drawn(tensor_specs(torch.float32, (4,), elements="bits", strides="contiguous"), 600)
    assert len({spec.storage() for spec in floats}) > 400
    assert any(set(spec.storage()[:4]) - {0, 1, 2, 127, 128, 255} for spec in floats)
    assert len({spec.storage()[:1] for spec in drawn(tensor_specs(torch.uint8, (1,), elements="bits"))}) > 64


class Odd(Tensor):
    pass


@pytest.mark.parametrize(
    ("arguments", "holds"),
    [
        ({"dtype": torch.int8}, lambda t: t.dtype == torch.int8),
        ({"dtype": st.sampled_from([torch.int8, torch.bool])}, lambda t: t.dtype in (torch.int8, torch.bool)),
        ({"shape": (2, 0, 3)}, lambda t: t.shape == (2, 0, 3)),
        ({"shape": [2, 3]}, lambda t: t.shape == (2, 3)),
        ({"shape": shapes(min_dims=2, max_dims=3)}, lambda t: t.dim() in (2, 3)),
        ({"dtype": torch.float32, "elements": -0.0, "view": "plain"}, lambda t: not any(map(bool, t.view(-1).signbit()))
         if not t.numel() else bool(t.signbit().all()) and not t.any()),
        ({"dtype": torch.int16, "elements": st.integers(5, 6)}, lambda t: set(t.flatten().tolist()) <= {5, 6}),
        ({"dtype": torch.float64, "elements": "nan"}, lambda t: bool(t.isnan().all())),
        ({"dtype": torch.int16, "elements": "0xffff"}, lambda t: set(t.flatten().tolist()) <= {-1}),
        ({"strides": "transposed", "shape": (2, 3)}, lambda t: t.stride() == (1, 2)),
        ({"strides": "overlapping"}, lambda t: set(t.stride()) == {1}),
        ({"strides": "channels-last"}, lambda t: t.dim() in (4, 5) and t.stride()[1] == 1),
        ({"strides": "offset", "shape": ()}, lambda t: t.storage_offset() > 0),
        ({"strides": (0, 3)}, lambda t: t.stride() == (0, 3)),
        ({"strides": st.sampled_from(["contiguous", "stepped"])}, lambda t: t.storage_offset() == 0),
        ({"dtype": torch.complex64, "view": "conj"}, lambda t: t.is_conj()),
        ({"view": "neg"}, lambda t: t.is_neg()),
        ({"view": st.just("conj")}, lambda t: t.is_conj()),
        ({"requires_grad": True}, lambda t: t.requires_grad and (t.dtype.is_floating_point or t.dtype.is_complex)),
        ({"requires_grad": st.just(True)}, lambda t: t.requires_grad == (t.is_floating_point() or t.is_complex())),
        ({"cls": nn.Parameter}, lambda t: type(t) is nn.Parameter and not t.requires_grad),
        ({"cls": nn.Buffer}, lambda t: isinstance(t, nn.Buffer)),
        ({"cls": Subclass}, lambda t: type(t) is Subclass),
        ({"cls": st.sampled_from([Odd, Tensor])}, lambda t: type(t) in (Odd, Tensor)),
        ({"layout": torch.sparse_csc}, lambda t: t.layout is torch.sparse_csc),
        ({"layout": torch.sparse_coo, "dtype": torch.bool, "shape": (2, 3)}, lambda t: t.is_sparse and t.shape == (2, 3)
         and t.dtype == torch.bool),
    ],
    ids=label,
)  # fmt: skip
def test_arguments_are_kept(arguments: dict[str, Any], holds: Any) -> None:
    found = drawn(tensors(**arguments), 30)
    assert len(found) > 5
    assert all(map(holds, found))


def test_layouts_can_be_drawn() -> None:
    found = drawn(tensors(torch.float32, layout=st.sampled_from([torch.strided, torch.sparse_coo])), 60)
    assert {tensor.layout for tensor in found} == {torch.strided, torch.sparse_coo}


def test_any_goes_only_with_what_fits() -> None:
    """Where the one argument is given, the other is drawn from what goes with it, and not filtered to death."""
    health = settings(STEADY, suppress_health_check=[], max_examples=60)
    for arguments in ({"view": "conj"}, {"view": "neg"}, {"requires_grad": True}, {"strides": "overlapping"},
                      {"strides": "expanded"}, {"strides": "transposed"}, {"elements": "nan"}, {"elements": -1},
                      {"elements": 1 + 1j}, {"elements": "0x123"}, {"strides": (2, 1)}, {"strides": st.just((2, 1))},
                      {"strides": st.sampled_from(STRIDES)}, {"view": st.just("conj")},
                      {"requires_grad": st.booleans()}, {"strides": st.just("channels-last")}):  # fmt: skip

        @health
        @given(tensors(**arguments))
        def run(tensor: Tensor) -> None:
            pass

        run()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": "float32"}, "dtype='float32' is no dtype"),
        ({"dtype": float}, "dtype=<class 'float'> is no dtype"),
        ({"shape": 3}, "shape=3 is no shape"),
        ({"shape": (2, -1)}, r"shape=\(2, -1\) has the side -1"),
        ({"shape": (2.0,)}, r"shape=\(2.0,\) has the side 2.0"),
        ({"shape": (True,)}, r"shape=\(True,\) has the side True"),
        ({"shape": "ab"}, "shape='ab' has the side 'a'"),
        ({"elements": "nonsense"}, "no dtype that goes with elements='nonsense'"),
        ({"elements": object}, "no dtype that goes with elements=<class 'object'>"),
        ({"dtype": torch.int32, "elements": 0.5}, "elements of dtype=torch.int32: 0.5"),
        ({"dtype": torch.int8, "elements": 200}, "elements of dtype=torch.int8: .*200"),
        ({"dtype": torch.int8, "elements": "0x100"}, "elements of dtype=torch.int8: '0x100'"),
        ({"dtype": torch.float32, "elements": 0.1}, "elements of dtype=torch.float32: 0.1 is not exactly"),
        ({"layout": "strided"}, "layout='strided' is none of"),
        ({"layout": None}, "layout=None is none of"),
        ({"layout": torch.sparse_csr, "shape": (3,)}, r"shape=\(3,\) does not go with layout=torch.sparse_csr"),
        ({"layout": torch.sparse_csr, "dtype": torch.qint8}, "dtype=torch.qint8 has no sparse tensors"),
        ({"layout": torch.sparse_csr, "elements": 1}, "elements=1 does not go with layout=torch.sparse_csr"),
        ({"layout": torch.sparse_coo, "strides": (1,)}, r"strides=\(1,\) does not go with layout"),
        ({"layout": torch.sparse_coo, "view": "conj"}, "view='conj' does not go with layout"),
        ({"layout": torch.sparse_coo, "requires_grad": True}, "requires_grad=True does not go with layout"),
        ({"layout": torch.sparse_coo, "cls": nn.Parameter}, "cls=.* does not go with layout"),
        ({"strides": "diagonal"}, "strides='diagonal' is no kind of strides"),
        ({"strides": 3}, "strides=3 is no kind of strides"),
        ({"strides": [1, 2]}, r"strides=\[1, 2\] is no kind of strides"),
        ({"strides": (-1,)}, r"strides=\(-1,\)"),
        ({"strides": ("a",)}, r"strides=\('a',\)"),
        ({"strides": (1,), "shape": (2, 3)}, r"strides=\(1,\) does not go with shape=\(2, 3\)"),
        ({"strides": "transposed", "shape": ()}, r"strides='transposed' does not go with shape=\(\)"),
        ({"strides": "offset", "dtype": torch.quint4x2}, "strides='offset' does not go with dtype=torch.quint4x2"),
        ({"view": "negative"}, "view='negative' is none of"),
        ({"view": ["conj"]}, r"view=\['conj'\] is none of"),
        ({"view": "conj", "dtype": torch.float32}, "view='conj' does not go with dtype=torch.float32"),
        ({"view": "neg", "dtype": torch.bool}, "view='neg' does not go with dtype=torch.bool"),
        ({"requires_grad": 1}, "requires_grad=1 is no bool"),
        ({"requires_grad": None}, "requires_grad=None is no bool"),
        ({"requires_grad": True, "dtype": torch.int8}, "requires_grad=True does not go with dtype=torch.int8"),
        ({"cls": nn.Module}, "cls=.*Module'> is no subclass of torch.Tensor"),
        ({"cls": "Tensor"}, "cls='Tensor' is no subclass"),
        ({"view": "conj", "requires_grad": True, "strides": "offset", "dtype": torch.int8}, "does not go with"),
        ({"view": "conj", "elements": "0x1234567890abcdef1234567890abcdef0"}, "elements="),
    ],
    ids=label,
)
def test_wrong_arguments_are_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        tensors(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": st.just("float32")}, "dtype='float32' is no dtype"),
        ({"dtype": st.none()}, "dtype=None is no dtype"),
        ({"shape": st.just((1, -1))}, r"shape=\(1, -1\) has the side -1"),
        ({"shape": st.none()}, "shape=None is no shape"),
        ({"elements": st.just("nonsense")}, "'nonsense' is no element"),
        ({"strides": st.just("diagonal")}, "strides='diagonal'"),
        ({"view": st.just("upside-down")}, "view='upside-down'"),
        ({"requires_grad": st.just("yes")}, "requires_grad='yes'"),
        ({"cls": st.just(3)}, "cls=3"),
        ({"layout": st.just("dense")}, "layout='dense'"),
    ],
    ids=label,
)
def test_wrong_values_are_refused_when_they_are_drawn(arguments: dict[str, Any], message: str) -> None:
    strategy = tensors(**arguments)
    with pytest.raises(InvalidArgument, match=message):
        drawn(strategy, 10)


@pytest.mark.parametrize(
    ("strategy", "wanted"),
    [
        (tensors(), "build(Dense(torch.float32, ()))"),
        (tensors(torch.float32, (2,), elements="0x7f800001"),
         "build(Dense(torch.float32, (2,), ['0x7f800001']))"),
        (tensors(torch.complex64, (), view="conj"), "build(Dense(torch.complex64, (), conj=True))"),
        (tensors(shape=(2, 2), strides="transposed"), "build(Dense(torch.float32, (2, 2), strides=(1, 2)))"),
        (tensors(layout=torch.sparse_coo), "build(Coo(torch.float32, (), (), coalesced=True))"),
        (st.lists(tensors(torch.int8, ()), min_size=2),
         "[build(Dense(torch.int8, ())), build(Dense(torch.int8, ()))]"),
        (st.tuples(st.just(1), tensors(layout=st.sampled_from([torch.strided]))),
         "(1, build(Dense(torch.float32, ())))"),
    ],
    ids=label,
)  # fmt: skip
def test_a_falsifying_example_is_code(strategy: Any, wanted: str) -> None:
    seen: list[Any] = []

    @settings(STEADY, max_examples=50, print_blob=False)
    @given(strategy)
    def fails(drawn: Any) -> None:
        seen.append(drawn)
        raise AssertionError("as it should")

    with pytest.raises(AssertionError) as caught:
        fails()
    shown = "\n".join(caught.value.__notes__)
    text = re.search(r"drawn=(.*?),?\s*\)$", re.sub(r"#.*", "", shown), re.S)
    assert text is not None, shown
    assert re.sub(r"\s+", " ", text[1]) == wanted
    again, last = evaluated(text[1]), seen[-1]
    assert type(again) is type(last)
    if isinstance(last, Tensor):
        assert (again.dtype, again.shape, again.layout) == (last.dtype, last.shape, last.layout)


def test_sparse_layouts_give_what_sparse_tensors_draw() -> None:
    assert Coo(torch.float32, ()).build().layout is torch.sparse_coo
    for layout in (torch.sparse_coo, torch.sparse_bsr):
        assert {tensor.layout for tensor in drawn(tensors(layout=layout), 20)} == {layout}
