"""State dicts: all kinds are drawn, what is shared truly is, and the repr is code."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument
from torch import Tensor

from pytest_tensorizer.strategies import (
    Dense,
    Part,
    Same,
    StateDict,
    build,
    state_dict_specs,
    state_dicts,
    tensor_specs,
)
from pytest_tensorizer.strategies.dtypes import PACKED, QUANTIZED
from tests.strategies.draws import drawn, evaluated, label
from tests.strategies.test_dense import memory, poison, shown


@pytest.fixture(scope="module")
def specs() -> list[StateDict]:
    return drawn(state_dict_specs(nested=True))


def leaves(value: Any) -> Iterator[Any]:
    """What stands in nested dicts and lists, in order."""
    if isinstance(value, (Mapping, list)):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from leaves(inner)
    else:
        yield value


def test_all_kinds_are_drawn(specs: list[StateDict]) -> None:
    assert {len(spec.entries) for spec in specs} == set(range(7))
    kinds = Counter(type(entry) for spec in specs for entry in spec.entries.values())
    assert set(kinds) == {Dense, Same, Part, dict, list}
    assert min(kinds.values()) > 20
    nested = [entry for spec in specs for entry in spec.entries.values() if isinstance(entry, (dict, list))]
    assert {type(inner) for entry in nested for inner in (entry.values() if isinstance(entry, dict) else entry)} == {
        Dense,
        list,
    }
    assert [] in nested
    assert {} in nested
    traits = Counter(trait for spec in specs for trait in spec.traits)
    wanted = {"no-tensors", "shared", "nested", "noncontiguous", "scalar", "empty", "conj", "neg"}
    kinds_of_names = {"empty", "long", "unicode", "dotted", "reserved", "control"}
    assert wanted | {f"name:{kind}" for kind in kinds_of_names} <= set(traits)
    assert "name:surrogate" not in traits
    parts = [entry for spec in specs for entry in spec.entries.values() if isinstance(entry, Part)]
    assert any(part.start > 0 for part in parts)
    assert any(part.length > 1 for part in parts)


def test_what_was_not_asked_for_is_not_drawn() -> None:
    for spec in drawn(state_dict_specs(), 200):
        assert all(isinstance(entry, (Dense, Same, Part)) for entry in spec.entries.values())
    for spec in drawn(state_dict_specs(shared=False), 200):
        assert all(isinstance(entry, Dense) for entry in spec.entries.values())
    for spec in drawn(state_dict_specs(shared=False, nested=True), 200):
        assert all(isinstance(entry, (Dense, dict, list)) for entry in spec.entries.values())


def test_tensors_are_those_of_the_specification(specs: list[StateDict]) -> None:
    shared = Counter[str]()
    for spec in specs:
        found, dense = spec.build(), spec.dense()
        assert list(found) == list(dense) == list(spec.entries)
        for name, entry in spec.entries.items():
            one, other = found[name], dense[name]
            for tensor, plain in zip(leaves(one), leaves(other), strict=True):
                assert (tensor.dtype, tensor.shape) == (plain.dtype, plain.shape)
                assert type(plain) is Tensor
                if tensor.dtype not in PACKED:
                    assert plain.is_contiguous()
                    assert shown(tensor) == memory(plain), (name, spec)
            if isinstance(entry, Same):
                assert one is found[entry.name]
                assert other is not dense[entry.name]
                shared["same"] += 1
            elif isinstance(entry, Part):
                whole = found[entry.name]
                assert one.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
                assert (one.storage_offset(), one.shape) == (entry.start, (entry.length,))
                assert one is not whole
                shared["part"] += 1
            elif isinstance(entry, Dense):
                assert shown(one) == entry.elements() or one.dtype in PACKED
        pointers = [t.data_ptr() for t in leaves(dense) if t.dtype not in PACKED and t.numel()]
        assert len(pointers) == len(set(pointers)), "what dense() gives shares nothing"
    assert min(shared["same"], shared["part"]) > 20


def test_tensors_that_are_not_said_to_be_shared_are_not() -> None:
    for spec in drawn(state_dict_specs(shared=False), 200):
        pointers = [t.untyped_storage().data_ptr() for t in spec.build().values() if t.untyped_storage().nbytes()]
        assert len(pointers) == len(set(pointers))


def test_each_call_builds_other_tensors(specs: list[StateDict]) -> None:
    for spec in specs[:150]:
        one, other = list(leaves(spec.build())), list(leaves(spec.build()))
        for tensor in one:
            if tensor.dtype not in QUANTIZED:
                poison(tensor)
        for tensor, expected in zip(other, leaves(spec.build()), strict=True):
            assert memory(tensor) == memory(expected)


def test_the_repr_is_code_and_specifications_can_be_pickled(specs: list[StateDict]) -> None:
    for spec in specs:
        again = evaluated(repr(spec))
        assert again == spec, repr(spec)
        assert list(again.entries) == list(spec.entries)
        assert repr(again) == repr(spec)
    assert pickle.loads(pickle.dumps(specs)) == specs


def test_the_repr_of_a_long_name_is_short() -> None:
    spec = StateDict({"a" * 65536: Dense(torch.float32, ()), "b": Same("a" * 65536), "c": Part("a" * 65536, 0, 1)})
    assert repr(spec) == (
        "StateDict({'a' * 65536: Dense(torch.float32, ()), 'b': Same('a' * 65536), 'c': Part('a' * 65536, 0, 1)})"
    )
    assert evaluated(repr(spec)) == spec
    assert [t.shape for t in build(spec).values()] == [(), (), (1,)]


def test_a_part_is_one_of_the_storage() -> None:
    whole = Dense(torch.int8, (2, 2), [1, 2, 3, 4, 5, 6], strides=(1, 2), offset=1, size=6)
    found = StateDict({"a": whole, "b": Part("a", 0, 3), "c": Same("a"), "d": Part("a", 5, 1)}).build()
    assert [tensor.tolist() for tensor in found.values()] == [[[2, 4], [3, 5]], [1, 2, 3], [[2, 4], [3, 5]], [6]]
    found["b"][1] = 9
    assert found["a"].tolist() == [[9, 4], [3, 5]]
    assert StateDict({"a": whole, "b": Part("a", 0, 3)}).dense()["b"].tolist() == [1, 2, 3]


def test_state_dicts_are_what_specifications_build() -> None:
    for value in drawn(state_dicts(), 60):
        assert type(value) is dict
        assert all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in value.items())


def test_arguments_are_kept() -> None:
    floats = tensor_specs(torch.float32, (2,))
    for spec in drawn(state_dict_specs(floats, names=st.sampled_from("xyz"), min_size=1, max_size=4), 100):
        assert 1 <= len(spec.entries) <= 4
        # A name that is in use gets longer, so that none is drawn again.
        assert all(name[0] in "xyz" and set(name[1:]) <= {"a"} for name in spec.entries)
        own = [entry for entry in spec.entries.values() if isinstance(entry, Dense)]
        assert {(entry.dtype, entry.shape) for entry in own} == {(torch.float32, (2,))}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tensors": torch.float32}, "tensors=torch.float32 is no strategy"),
        ({"tensors": tensor_specs}, "tensors=<function tensor_specs.* is no strategy"),
        ({"names": "abc"}, "names='abc' is no strategy"),
        ({"min_size": -1}, "min_size=-1 is out of range: give 0 or more"),
        ({"min_size": 7}, "max_size=6 is out of range: give 7 or more"),
        ({"min_size": 3, "max_size": 2}, "max_size=2 is out of range: give 3 or more"),
        ({"max_size": 2.0}, "max_size=2.0 is no int"),
        ({"max_size": True}, "max_size=True is no int"),
        ({"shared": 1}, "shared=1 is no bool"),
        ({"nested": "yes"}, "nested='yes' is no bool"),
    ],
    ids=label,
)
def test_wrong_arguments_are_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    for strategy in (state_dicts, state_dict_specs):
        with pytest.raises(InvalidArgument, match=message):
            strategy(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tensors": st.just(3)}, "tensors=3 is no Dense"),
        ({"names": st.just(3)}, "names=3 is no str"),
    ],
    ids=label,
)
def test_wrong_values_are_refused_when_they_are_drawn(arguments: dict[str, Any], message: str) -> None:
    strategy = state_dicts(**arguments, min_size=1)
    with pytest.raises(InvalidArgument, match=message):
        drawn(strategy, 10)
