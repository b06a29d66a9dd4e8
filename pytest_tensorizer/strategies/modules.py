"""Modules: parameters and buffers of every kind, in a tree in which some things are shared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import nn

from pytest_tensorizer.strategies import arguments
from pytest_tensorizer.strategies import names as naming
from pytest_tensorizer.strategies.code import Code, built
from pytest_tensorizer.strategies.dense import Dense
from pytest_tensorizer.strategies.indices import sizes
from pytest_tensorizer.strategies.names import identifiers, unused
from pytest_tensorizer.strategies.state_dicts import Same, mapping_code
from pytest_tensorizer.strategies.strides import overlaps
from pytest_tensorizer.strategies.tensors import tensor_specs


class Assembled(nn.Module):
    """A module that somebody has put together. It computes nothing."""


@dataclass(frozen=True, repr=False)
class Module(Code):
    """A module, as data.

    Attributes:
        parameters: name -> tensor. Its `requires_grad` says whether it is frozen; `Same` ties it to another parameter
            of the tree, by the path of that one from the root ("layer.weight"), which comes before.
        buffers: name -> tensor.
        transient: the names of the buffers that are not part of the state dict.
        children: name -> module; `Same` is one that stands elsewhere too, by its path.
    """

    parameters: Mapping[str, Dense | Same] = field(default_factory=dict)
    buffers: Mapping[str, Dense] = field(default_factory=dict)
    transient: tuple[str, ...] = ()
    children: Mapping[str, Module | Same] = field(default_factory=dict)

    def build(self) -> nn.Module:
        """The module, new in each call."""
        root = Assembled()
        self._fill(root)
        self._tie(root, root)
        return root

    def blank(self) -> nn.Module:
        """A module of the same structure, for a loader to fill: every bit of its tensors is another one.

        That it is another one, and not zero, is what shows a tensor that the loader has left out.
        """
        return self._changed().build()

    def _changed(self) -> Module:
        return Module(
            {name: _other_bits(value) for name, value in self.parameters.items()},
            {name: _other_bits(value) for name, value in self.buffers.items()},
            self.transient,
            {name: c if isinstance(c, Same) else c._changed() for name, c in self.children.items()},
        )

    def _fill(self, module: nn.Module) -> None:
        for name, spec in self.parameters.items():
            if isinstance(spec, Dense):
                module.register_parameter(name, nn.Parameter(_plain(spec).build(), spec.requires_grad))
        for name, buffer in self.buffers.items():
            module.register_buffer(name, _plain(buffer).build(), persistent=name not in self.transient)
        for name, child in self.children.items():
            if isinstance(child, Module):
                module.add_module(name, Assembled())
                child._fill(module.get_submodule(name))

    def _tie(self, module: nn.Module, root: nn.Module) -> None:
        # When all the others are there, since what is tied may come before its parent.
        for name, spec in self.parameters.items():
            if isinstance(spec, Same):
                module.register_parameter(name, root.get_parameter(spec.name))
        for name, child in self.children.items():
            if isinstance(child, Same):
                module.add_module(name, root.get_submodule(child.name))
            else:
                child._tie(module.get_submodule(name), root)

    @property
    def traits(self) -> frozenset[str]:
        """Those of names and tensors, and "frozen", "tied", "shared-module", "buffer", "transient", "no-tensors"."""
        found: set[str] = {"transient"} if self.transient else set()
        found.update(*map(naming.traits, (*self.parameters, *self.buffers, *self.children)))
        for spec in self.parameters.values():
            found |= (
                {"tied"} if isinstance(spec, Same) else spec.traits | ({"frozen"} if not spec.requires_grad else set())
            )
        for buffer in self.buffers.values():
            found |= buffer.traits | {"buffer"}
        for child in self.children.values():
            found |= {"shared-module"} if isinstance(child, Same) else child.traits
        if any(trait.startswith("dtype:") for trait in found):  # some of these may be of children that have none
            found.discard("no-tensors")
        else:
            found.add("no-tensors")
        return frozenset(found - {"requires-grad"})

    def __repr__(self) -> str:
        parts = {name: getattr(self, name) for name in ("parameters", "buffers", "transient", "children")}
        texts = {
            name: repr(part) if name == "transient" else mapping_code(part) for name, part in parts.items() if part
        }
        return f"Module({', '.join(f'{name}={text}' for name, text in texts.items())})"


def _plain(spec: Dense) -> Dense:
    return replace(spec, requires_grad=False, cls=torch.Tensor)


def _other_bits(spec: Any) -> Any:
    """A tensor to copy another one to, which lies in memory as that one does, if it can lie so."""
    if isinstance(spec, Same):
        return spec
    lies_anew = overlaps(spec.shape, spec.lie[0])
    data = spec.elements() if lies_anew else spec.data
    flipped = bytes(byte ^ 0x55 for byte in data or bytes(spec.dtype.itemsize))
    if spec.dtype is torch.bool:
        flipped = bytes(byte & 1 for byte in flipped)
    lie = {"strides": None, "offset": 0, "size": None} if lies_anew else {}
    return replace(spec, data=flipped, conj=False, neg=False, **lie)


def modules(
    tensors: st.SearchStrategy[Dense] | None = None, *, max_tensors: int = 6, max_children: int = 2, max_depth: int = 2
) -> st.SearchStrategy[nn.Module]:
    """A module: a tree with parameters, frozen or not, and buffers, persistent or not; some tied or shared.

    Args:
        tensors: what to draw the specifications of the tensors from; those of `tensor_specs`, some of which require
            grad, without it.
        max_tensors: the most parameters and buffers of each part.
        max_children: the most children of each part.
        max_depth: how many levels of children there are at most.

    Raises:
        InvalidArgument: a number is no int, or is negative; `tensors` is no strategy, or draws what it should not.
    """
    return built(module_specs(tensors, max_tensors=max_tensors, max_children=max_children, max_depth=max_depth))


def module_specs(
    tensors: st.SearchStrategy[Dense] | None = None, *, max_tensors: int = 6, max_children: int = 2, max_depth: int = 2
) -> st.SearchStrategy[Module]:
    """The specification of a module, which `build()` makes, and `blank()` with other values: see `modules`."""
    for name, value in (("max_tensors", max_tensors), ("max_children", max_children), ("max_depth", max_depth)):
        arguments.integer(name, value)
    parts = _parts(arguments.strategy("tensors", tensors, Dense, _TENSORS), max_tensors, max_children, max_depth)
    return parts.map(lambda part: _Assembly().module("", part))


_EMPTY = Assembled()
_TENSORS = tensor_specs(requires_grad=st.booleans())
_NAMES = identifiers().filter(lambda name: not hasattr(_EMPTY, name))
_TENSOR_KIND = st.sampled_from(("parameter", "tied", "buffer", "transient"))
_CHILD_KIND = st.sampled_from(("child", "shared"))
_WHICH = st.sampled_from(range(4))


class _Part(NamedTuple):
    """What was drawn for a module: (name, kind, which of the earlier ones a "tied" or "shared" one means, content)."""

    tensors: list[tuple[str, str, int, Dense]]
    children: list[tuple[str, str, int, Any]]


def _parts(tensors: st.SearchStrategy[Dense], most: int, children: int, depth: int) -> st.SearchStrategy[_Part]:
    inner = _parts(tensors, most, children, depth - 1) if depth else st.nothing()
    child = st.tuples(_NAMES, _CHILD_KIND, _WHICH, inner)
    tensor = st.tuples(_NAMES, _TENSOR_KIND, _WHICH, tensors)
    return _part(sizes(0, children if depth else 0), child, sizes(0, most), tensor)


@st.composite
def _part(draw: st.DrawFn, children: Any, child: Any, size: Any, tensor: Any) -> _Part:
    # Numbers and no lists, as for state dicts. The tensors come last: what is left of them where there are less is then
    # not taken for children.
    inner = [draw(child) for _ in range(draw(children))]
    return _Part([draw(tensor) for _ in range(draw(size))], inner)


class _Assembly:
    """Makes modules of what was drawn, and knows the paths of those parameters and modules that can be shared."""

    def __init__(self) -> None:
        self._parameters: list[str] = []
        self._modules: list[str] = []

    def module(self, path: str, part: _Part) -> Module:
        parameters: dict[str, Any] = {}
        buffers: dict[str, Dense] = {}
        transient: list[str] = []
        children: dict[str, Any] = {}
        for drawn, kind, which, spec in part.tensors:
            name = unused(drawn, {*parameters, *buffers})
            if kind == "tied" and self._parameters:
                parameters[name] = Same(self._parameters[which % len(self._parameters)])
            elif kind in ("parameter", "tied"):
                parameters[name] = spec
                self._parameters.append(path + name)
            else:
                buffers[name] = spec
                transient += [name] if kind == "transient" else []
        for drawn, kind, which, inner in part.children:
            name = unused(drawn, {*parameters, *buffers, *children})
            if kind == "shared" and self._modules:
                children[name] = Same(self._modules[which % len(self._modules)])
            else:
                children[name] = self.module(f"{path}{name}.", inner)
                self._modules.append(path + name)
        return Module(parameters, buffers, tuple(transient), children)
