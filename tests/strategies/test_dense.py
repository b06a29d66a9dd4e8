"""Dense specifications: the tensor has the elements that were drawn, and the repr is code."""

from __future__ import annotations

import ctypes
import itertools
import pickle
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from pytest_tensorizer.strategies import Dense, Subclass, build, tensor_specs
from pytest_tensorizer.strategies.dtypes import PACKED, QUANTIZED, all_dtypes
from tests.strategies.draws import drawn, evaluated, label

CLASSES = st.sampled_from([Tensor, nn.Parameter, nn.Buffer, Subclass])


@pytest.fixture(scope="module")
def specs() -> list[Dense]:
    return drawn(tensor_specs(requires_grad=st.booleans(), cls=CLASSES))


def memory(tensor: Tensor) -> bytes:
    """The bytes of the storage, past torch."""
    storage = tensor.untyped_storage()
    return ctypes.string_at(storage.data_ptr(), storage.nbytes()) if storage.nbytes() else b""


def poison(tensor: Tensor) -> None:
    """Overwrite the storage."""
    storage = tensor.untyped_storage()
    ctypes.memset(storage.data_ptr(), 0x5A, storage.nbytes())


def shown(tensor: Tensor) -> bytes:
    """The bits of the elements in row-major order, read out of the storage by the tensor's own strides.

    Where the tensor shows something else than lies there, the sign bits are flipped here too: by arithmetic on ints.
    """
    width, data = tensor.itemsize, memory(tensor)
    found = bytearray()
    for index in itertools.product(*map(range, tensor.shape)):
        place = tensor.storage_offset() + sum(i * s for i, s in zip(index, tensor.stride(), strict=True))
        word = int.from_bytes(data[place * width : (place + 1) * width], "little")
        if tensor.is_conj():
            word ^= 1 << (8 * width - 1)
        if tensor.is_neg():
            word ^= 1 << (8 * width - 1)
        found += word.to_bytes(width, "little")
    return bytes(found)


def raw(tensor: Tensor) -> bytes:
    """The bits of a contiguous tensor."""
    return memory(tensor)[: tensor.numel() * tensor.itemsize]


def test_the_tensor_has_the_elements_that_were_drawn(specs: list[Dense]) -> None:
    compared = 0
    for spec in specs:
        if spec.dtype in PACKED:
            continue
        tensor = spec.build()
        assert (tensor.dtype, tensor.shape, tensor.storage_offset()) == (spec.dtype, spec.shape, spec.offset)
        assert tensor.stride() == spec.lie[0]
        assert (tensor.is_conj(), tensor.is_neg(), tensor.requires_grad) == (spec.conj, spec.neg, spec.requires_grad)
        assert type(tensor) is spec.cls or (spec.cls is nn.Buffer and isinstance(tensor, nn.Buffer))
        assert memory(tensor) == spec.storage()
        assert shown(tensor) == spec.elements(), spec
        compared += bool(any(spec.elements()))
    assert compared > 200


def test_packed_elements_lie_as_they_were_drawn() -> None:
    for dtype, bits in PACKED.items():
        for spec in drawn(tensor_specs(dtype), 100):
            tensor, pattern = spec.build(), spec.data
            assert (tensor.dtype, tensor.shape) == (dtype, spec.shape)
            data, each = memory(tensor), 8 // bits
            assert len(data) >= -(-tensor.numel() // each)
            assert isinstance(pattern, bytes)
            assert (
                data == (pattern * (len(data) // max(len(pattern), 1) + 1))[: len(data)] if pattern else not any(data)
            )
            assert memory(spec.dense()) == data


def test_torch_reads_the_same_elements() -> None:
    """Where torch can copy a view bit for bit, it comes to the same as the data."""
    for dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128):
        views = set()
        for spec in drawn(tensor_specs(dtype), 150):
            tensor = spec.build()
            copy = torch.empty(spec.shape, dtype=dtype).copy_(tensor.resolve_conj().resolve_neg())
            assert raw(copy) == spec.elements(), spec
            views.add("conj" if spec.conj else "neg" if spec.neg else "plain")
        assert views == {"plain", "conj" if dtype.is_complex else "neg"}
    copied = 0
    for dtype in set(all_dtypes()) - {*QUANTIZED, torch.bool}:
        for spec in drawn(tensor_specs(dtype, view="plain"), 20):
            try:
                copy = torch.empty(spec.shape, dtype=dtype).copy_(spec.build())
            except NotImplementedError:  # torch copies no int1, uint7, …
                continue
            assert raw(copy) == spec.elements(), spec
            copied += 1
    assert copied > 400


def test_dense_is_the_contiguous_tensor_of_the_same_elements(specs: list[Dense]) -> None:
    for spec in specs:
        dense = spec.dense()
        assert (dense.dtype, dense.shape, type(dense)) == (spec.dtype, spec.shape, Tensor)
        assert dense.storage_offset() == 0
        assert (dense.is_conj(), dense.is_neg(), dense.requires_grad) == (False, False, False)
        if spec.dtype not in PACKED:
            assert dense.is_contiguous()
            assert memory(dense) == spec.elements()


def test_storages_are_small(specs: list[Dense]) -> None:
    assert max(len(spec.storage()) for spec in specs) < 200_000


def test_what_has_no_effect_makes_no_difference() -> None:
    assert Dense(torch.int8, (2,), [1, 2, 3]) == Dense(torch.int8, (2,), [1, 2])
    assert Dense(torch.int8, (2,), [0, 0]) == Dense(torch.int8, (2,)) != Dense(torch.int8, (2,), [0, 1])


def test_each_call_builds_another_tensor(specs: list[Dense]) -> None:
    for spec in specs[:200]:
        if spec.dtype not in PACKED and spec.storage():
            one, other = spec.build(), spec.build()
            assert one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr()
            poison(one)
            assert memory(other) == memory(spec.build()) == spec.storage()


def test_a_quantized_tensor_has_a_scale() -> None:
    for dtype in QUANTIZED:
        tensor = Dense(dtype, (2, 2), b"\1\2\3\4").build()
        assert (tensor.q_scale(), tensor.q_zero_point(), tensor.qscheme()) == (0.5, 1, torch.per_tensor_affine)


def test_the_repr_is_code(specs: list[Dense]) -> None:
    for spec in specs:
        again = evaluated(repr(spec))
        assert repr(again) == repr(spec)
        assert again == spec, repr(spec)
        assert hash(again) == hash(spec)
        if spec.dtype not in PACKED:
            assert again.storage() == spec.storage()


def test_specifications_can_be_pickled(specs: list[Dense]) -> None:
    again = pickle.loads(pickle.dumps(specs))
    assert again == specs
    for one, other in zip(specs, again, strict=True):
        assert one.dtype in PACKED or memory(one.build()) == memory(other.build())
        assert one.traits == other.traits


@pytest.mark.parametrize(
    "text",
    [
        "Dense(torch.float32, ())",
        "Dense(torch.float32, (2, 3), [1.0, -0.0, 'nan', '0x7f800001', 'inf', '-inf'])",
        "Dense(torch.float32, (2, 3), [1.0, 2.0], strides=(1, 2), offset=3, size=12)",
        "Dense(torch.bool, (2,), [True, '0x02'])",
        "Dense(torch.complex64, (2,), [(1+2j), '0x7f80000100000000'], conj=True)",
        "Dense(torch.float64, (1,), [5e-324], neg=True)",
        "Dense(torch.bfloat16, (1,), ['0x7fc1'], requires_grad=True, cls=torch.nn.Parameter)",
        "Dense(torch.int8, (1,), [-128], cls=torch.nn.Buffer)",
        "Dense(torch.qint8, (1,), ['0x80'], cls=Subclass)",
        "Dense(torch.bits8, (1,), ['0x80'])",
        "Dense(torch.uint64, (1,), [18446744073709551615])",
    ],
)
def test_reprs(text: str) -> None:
    assert repr(evaluated(text)) == text


def test_data_is_written_as_numbers_or_bits_or_bytes() -> None:
    assert Dense(torch.float32, (2,), [1.0, 2.0]) == Dense(torch.float32, (2,), ["0x3f800000", 2])
    assert Dense(torch.int16, (2,), b"\1\0\2\0") == Dense(torch.int16, (2,), (1, 2)) != Dense(torch.int16, (2,), [1, 3])
    assert build(Dense(torch.int16, (5,), [1, 2])).tolist() == [1, 2, 1, 2, 1]
    assert build(Dense(torch.int16, (2, 2), [1, 2, 3, 4], strides=(0, 1), offset=1, size=4)).tolist() == [[2, 3]] * 2


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((torch.int8, (1,), [300]), ValueError, "300"),
        ((torch.int8, (1,), [1.5]), ValueError, "1.5 is not exactly an element of torch.int8"),
        ((torch.int8, (1,), ["0x100"]), ValueError, "more bits"),
        ((torch.bits8, (1,), [1]), ValueError, "give its bits"),
        ((torch.int8, (1,), ["one"]), ValueError, "'one' is no element"),
        ((torch.int8, (1,), [None]), TypeError, "None is no element"),
    ],
    ids=label,
)
def test_elements_that_the_dtype_does_not_have(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Dense(*arguments)
