"""Modules: all kinds are drawn, ties are ties, a blank one has the same structure and other bits, the repr is code."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument
from torch import Tensor, nn

from pytest_tensorizer.strategies import Dense, Module, Same, build, module_specs, modules, tensor_specs
from pytest_tensorizer.strategies.dtypes import PACKED
from tests.strategies.draws import drawn, evaluated, label
from tests.strategies.test_dense import memory, shown


@pytest.fixture(scope="module")
def specs() -> list[Module]:
    return drawn(module_specs(), 300)


def tensors(module: nn.Module) -> dict[str, Tensor]:
    """Every parameter and buffer, once for each name that leads to it."""
    found = dict(module.named_parameters(remove_duplicate=False))
    return found | dict(module.named_buffers(remove_duplicate=False))


def ties(module: nn.Module) -> set[frozenset[str]]:
    """The names that lead to the same tensor, of each that has several."""
    names: dict[int, set[str]] = {}
    for name, tensor in tensors(module).items():
        names.setdefault(id(tensor), set()).add(name)
    return {frozenset(found) for found in names.values() if len(found) > 1}


def structure(module: nn.Module) -> Any:
    """All that a loader has to keep but the values."""
    facts = {
        name: (tensor.dtype, tensor.shape, tensor.requires_grad, type(tensor))
        for name, tensor in tensors(module).items()
    }
    same_modules: dict[int, set[str]] = {}
    for name, child in module.named_modules(remove_duplicate=False):
        same_modules.setdefault(id(child), set()).add(name)
    persistent = set(module.state_dict())
    return facts, ties(module), sorted(map(sorted, same_modules.values())), persistent


def dense_of(spec: Module, name: str) -> Dense | None:
    """The specification of the tensor at the path `name`; None where the path leads through something shared."""
    *path, last = name.split(".")
    for part in path:
        child = spec.children[part]
        if isinstance(child, Same):
            return None
        spec = child
    found = spec.parameters.get(last) or spec.buffers.get(last)
    return found if isinstance(found, Dense) else None


def test_all_kinds_are_drawn(specs: list[Module]) -> None:
    traits = Counter(trait for spec in specs for trait in spec.traits)
    wanted = {"frozen", "tied", "shared-module", "buffer", "transient", "scalar", "empty", "noncontiguous", "conj"}
    assert wanted <= set(traits)
    assert min(traits[trait] for trait in ("frozen", "tied", "shared-module", "buffer", "transient")) > 20
    built = [spec.build() for spec in specs]
    assert any(parameter.requires_grad for module in built for parameter in module.parameters())
    depths = {max(name.count(".") + bool(name) for name, _ in module.named_modules()) for module in built}
    assert depths == {0, 1, 2}
    assert any(not tensors(module) for module in built)
    assert any(set(dict(module.named_buffers())) - set(module.state_dict()) for module in built)
    assert any(ties(module) for module in built)


def test_the_module_is_as_it_was_drawn(specs: list[Module]) -> None:
    compared = Counter[str]()
    for spec in specs:
        module = spec.build()
        parameters = dict(module.named_parameters(remove_duplicate=False))
        for name, tensor in tensors(module).items():
            dense = dense_of(spec, name)
            if dense is None:
                continue
            assert (tensor.dtype, tensor.shape) == (dense.dtype, dense.shape)
            assert tensor.dtype in PACKED or shown(tensor) == dense.elements()
            if name in parameters:
                assert type(tensor) is nn.Parameter
                assert tensor.requires_grad == dense.requires_grad
            else:
                assert not tensor.requires_grad
                owner, _, last = name.rpartition(".")
                is_transient = last in _at(spec, owner).transient
                assert (name in module.state_dict()) == (not is_transient)
                compared["transient"] += is_transient
            compared["tensor"] += 1
        for path, part in _parts(spec):
            for name, entry in part.parameters.items():
                if isinstance(entry, Same):
                    assert module.get_parameter(f"{path}{name}") is module.get_parameter(entry.name)
                    compared["tied"] += 1
            for name, child in part.children.items():
                if isinstance(child, Same):
                    assert module.get_submodule(f"{path}{name}") is module.get_submodule(child.name)
                    compared["shared"] += 1
    assert min(compared[kind] for kind in ("tensor", "transient", "tied", "shared")) > 25


def _at(spec: Module, path: str) -> Module:
    for part in path.split(".") if path else []:
        child = spec.children[part]
        assert isinstance(child, Module)
        spec = child
    return spec


def _parts(spec: Module, path: str = "") -> list[tuple[str, Module]]:
    found = [(path, spec)]
    for name, child in spec.children.items():
        if isinstance(child, Module):
            found += _parts(child, f"{path}{name}.")
    return found


def test_a_blank_module_has_the_same_structure_and_other_bits(specs: list[Module]) -> None:
    compared = 0
    for spec in specs:
        module, blank = spec.build(), spec.blank()
        assert structure(module) == structure(blank), spec
        for name, tensor in tensors(module).items():
            other = tensors(blank)[name]
            assert tensor is not other
            # Each element, and not only some one: what is left out of a tensor shows too.
            width = 1 if tensor.dtype in PACKED else tensor.itemsize
            read = memory if tensor.dtype in PACKED else shown
            data, changed = read(tensor), read(other)
            words = [(data[i : i + width], changed[i : i + width]) for i in range(0, len(data), width)]
            assert all(one != another for one, another in words), (name, spec)
            compared += len(words) > 0
    assert compared > 250


def test_a_blank_module_can_be_copied_into(specs: list[Module]) -> None:
    """Its tensors are no views and do not overlap, and otherwise lie as those of the module do."""
    alike = 0
    for spec in specs:
        module, blank = tensors(spec.build()), tensors(spec.blank())
        for name, tensor in blank.items():
            assert (tensor.is_conj(), tensor.is_neg()) == (False, False)
            if tensor.dtype in (torch.uint8, torch.int16, torch.int32, torch.int64):
                with torch.no_grad():
                    tensor.copy_(module[name])
                assert shown(tensor) == shown(module[name])
                alike += tensor.stride() == module[name].stride() != Dense(tensor.dtype, tensor.shape).lie[0]
    assert alike > 0


def test_each_call_builds_another_module(specs: list[Module]) -> None:
    for spec in specs[:100]:
        one, other = spec.build(), spec.build()
        assert structure(one) == structure(other)
        pointers = {tensor.untyped_storage().data_ptr() for tensor in tensors(one).values() if tensor.numel()}
        assert not pointers & {t.untyped_storage().data_ptr() for t in tensors(other).values() if t.numel()}


def test_a_state_dict_goes_into_a_blank_module() -> None:
    """What the strategy is for: torch's own loading brings back all that is persistent, where it can copy at all."""
    plain = tensor_specs(st.sampled_from([torch.float32, torch.int64]), strides="contiguous", view="plain",
                         requires_grad=st.booleans())  # fmt: skip
    loaded = 0
    for spec in drawn(module_specs(plain), 150):
        module, blank = spec.build(), spec.blank()
        blank.load_state_dict(module.state_dict())
        for name, tensor in tensors(module).items():
            if name in module.state_dict():
                assert memory(tensors(blank)[name]) == memory(tensor)
                loaded += 1
    assert loaded > 200


def test_the_repr_is_code_and_specifications_can_be_pickled(specs: list[Module]) -> None:
    for spec in specs:
        again = evaluated(repr(spec))
        assert again == spec, repr(spec)
        assert repr(again) == repr(spec)
    assert pickle.loads(pickle.dumps(specs)) == specs


def test_a_tree_by_hand() -> None:
    text = (
        "Module(parameters={'a': Dense(torch.float32, (2,), [1.0], requires_grad=True), 'b': Same('c.w')}, "
        "buffers={'n': Dense(torch.int64, (), [3])}, transient=('n',), "
        "children={'c': Module(parameters={'w': Dense(torch.float32, (1,))}), 'd': Same('c')})"
    )
    spec = evaluated(text)
    assert repr(spec) == text
    module = build(spec)
    assert list(module.state_dict()) == ["a", "b", "c.w", "d.w"]
    assert module.b is module.c.w is module.d.w
    assert (module.a.requires_grad, module.b.requires_grad, module.n.item()) == (True, False, 3)
    assert spec.traits == {"dtype:float32", "dtype:int64", "scalar", "frozen", "tied", "buffer", "transient",
                           "shared-module"}  # fmt: skip


def test_modules_are_what_specifications_build() -> None:
    assert all(isinstance(module, nn.Module) for module in drawn(modules(), 50))


def test_arguments_are_kept() -> None:
    for spec in drawn(module_specs(tensor_specs(torch.int8), max_tensors=2, max_children=1, max_depth=1), 150):
        for path, part in _parts(spec):
            assert len(part.parameters) + len(part.buffers) <= 2
            assert len(part.children) <= 1
            assert path.count(".") <= 1
            found = [*part.parameters.values(), *part.buffers.values()]
            assert all(entry.dtype is torch.int8 for entry in found if isinstance(entry, Dense))
    assert all(not spec.children for spec in drawn(module_specs(max_depth=0), 60))
    assert all(not tensors(spec.build()) for spec in drawn(module_specs(max_tensors=0), 60))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tensors": 3}, "tensors=3 is no strategy"),
        ({"max_tensors": -1}, "max_tensors=-1 is out of range"),
        ({"max_children": 1.5}, "max_children=1.5 is no int"),
        ({"max_depth": None}, "max_depth=None is no int"),
    ],
    ids=label,
)
def test_wrong_arguments_are_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    for strategy in (modules, module_specs):
        with pytest.raises(InvalidArgument, match=message):
            strategy(**arguments)


def test_a_drawn_value_that_is_no_specification_is_refused() -> None:
    strategy = modules(st.just(torch.ones(1)))  # type: ignore[arg-type]
    told = r"tensors=a tensor is no Dense: give one, or a strategy of them \(tensor_specs\(\) is one\)"
    with pytest.raises(InvalidArgument, match=told):
        drawn(strategy, 30)
