"""State dicts: tensors under names, some of which share their memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from torch import Tensor

from pytest_tensorizer.strategies import arguments, names
from pytest_tensorizer.strategies.code import Code, built
from pytest_tensorizer.strategies.dense import Dense
from pytest_tensorizer.strategies.dtypes import QUANTIZED
from pytest_tensorizer.strategies.indices import sizes
from pytest_tensorizer.strategies.tensors import tensor_specs


@dataclass(frozen=True, repr=False)
class Same(Code):
    """The tensor, or the module, that has this other name too."""

    name: str

    def __repr__(self) -> str:
        return f"Same({names.code(self.name)})"


@dataclass(frozen=True, repr=False)
class Part(Code):
    """A one-dimensional view of the storage of the tensor that has this name: `length` elements from `start` on."""

    name: str
    start: int
    length: int

    def __repr__(self) -> str:
        return f"Part({names.code(self.name)}, {self.start}, {self.length})"


Entry = Dense | Same | Part


@dataclass(frozen=True, repr=False)
class StateDict(Code):
    """Tensors under names. In `entries`, `Same` and `Part` refer to names that come before; it may be nested."""

    entries: Mapping[str, Any]

    def build(self) -> dict[str, Any]:
        """The tensors, new in each call: what a loader has to give, if the ones of another call were saved."""
        found: dict[str, Any] = {}
        for name, entry in self.entries.items():
            found[name] = _build(entry, found)
        return found

    def dense(self) -> dict[str, Any]:
        """The same elements in contiguous tensors that share nothing, out of the specification: see `Dense.dense`."""
        return {name: _dense(entry, self.entries) for name, entry in self.entries.items()}

    @property
    def traits(self) -> frozenset[str]:
        """Those of the names and the tensors, and "shared", "nested", "no-tensors"."""
        found: set[str] = set() if self.entries else {"no-tensors"}
        for name, entry in self.entries.items():
            found |= names.traits(name) | _entry_traits(entry)
        return frozenset(found)

    def __repr__(self) -> str:
        return f"StateDict({mapping_code(self.entries)})"


def mapping_code(entries: Mapping[str, Any]) -> str:
    """The repr of a dict whose keys are names."""
    return f"{{{', '.join(f'{names.code(name)}: {entry!r}' for name, entry in entries.items())}}}"


def _build(entry: Any, found: Mapping[str, Any]) -> Any:
    if isinstance(entry, Dense):
        return entry.build()
    if isinstance(entry, Same):
        return found[entry.name]
    if isinstance(entry, Part):
        whole: Tensor = found[entry.name]
        return whole.detach().as_strided((entry.length,), (1,), entry.start)
    if isinstance(entry, Mapping):
        return {key: _build(value, found) for key, value in entry.items()}
    return [_build(value, found) for value in entry]


def _dense(entry: Any, entries: Mapping[str, Any]) -> Any:
    if isinstance(entry, Dense):
        return entry.dense()
    if isinstance(entry, Same):
        return _dense(entries[entry.name], entries)
    if isinstance(entry, Part):
        whole: Dense = entries[entry.name]
        return Dense(whole.dtype, (entry.length,), whole.storage(), offset=entry.start).dense()
    if isinstance(entry, Mapping):
        return {key: _dense(value, entries) for key, value in entry.items()}
    return [_dense(value, entries) for value in entry]


def _entry_traits(entry: Any) -> frozenset[str]:
    if isinstance(entry, Dense):
        return entry.traits
    if isinstance(entry, (Same, Part)):
        return frozenset({"shared"})
    inner: Sequence[Any] = list(entry.values()) if isinstance(entry, Mapping) else entry
    return frozenset({"nested"}).union(*map(_entry_traits, inner))


def state_dicts(
    tensors: st.SearchStrategy[Dense] | None = None,
    *,
    names: st.SearchStrategy[str] | None = None,
    min_size: int = 0,
    max_size: int = 6,
    shared: bool = True,
    nested: bool = False,
) -> st.SearchStrategy[dict[str, Any]]:
    """A dict of names and tensors.

    Args:
        tensors: what to draw the specifications of the tensors from; `tensor_specs()` without it.
        names: what to draw the names from; `names()` without it.
        min_size, max_size: how many names there are.
        shared: some names lead to the same tensor as others, or to a part of its storage.
        nested: some values are dicts or lists of tensors, for formats that claim to write these.

    Raises:
        InvalidArgument: a number is no int, or out of range; `tensors` or `names` is no strategy, or draws what it
            should not.
    """
    specs = state_dict_specs(tensors, names=names, min_size=min_size, max_size=max_size, shared=shared, nested=nested)
    return built(specs)


def state_dict_specs(
    tensors: st.SearchStrategy[Dense] | None = None,
    *,
    names: st.SearchStrategy[str] | None = None,
    min_size: int = 0,
    max_size: int = 6,
    shared: bool = True,
    nested: bool = False,
) -> st.SearchStrategy[StateDict]:
    """The specification of a state dict, which `build()` makes: see `state_dicts`."""
    arguments.integer("min_size", min_size)
    arguments.integer("max_size", max_size, least=min_size)
    arguments.flag("shared", shared)
    arguments.flag("nested", nested)
    keys = arguments.strategy("names", names, str, _NAMES)
    values = arguments.strategy("tensors", tensors, Dense, _TENSORS)
    one = st.tuples(keys, _KIND, _WHICH, values)
    return _state_dicts(sizes(min_size, max_size), one, shared, nested)


_NAMES, _TENSORS = names.names(), tensor_specs()
_KIND = st.sampled_from(("own",) * 5 + ("same", "part", "nested"))
_WHICH = st.sampled_from(range(12))


@st.composite
def _state_dicts(
    draw: st.DrawFn, size: st.SearchStrategy[int], one: st.SearchStrategy[Any], shared: bool, nested: bool
) -> StateDict:
    entries: dict[str, Any] = {}
    # A number of parts, and no list: Hypothesis takes away from a list what consists of few choices, and a tensor has
    # many. Where it lowers a number, it tries to do without the first of the parts that follow.
    for _ in range(draw(size)):
        key, kind, which, spec = draw(one)
        name = names.unused(key, entries)
        own = [other for other, entry in entries.items() if isinstance(entry, Dense)]
        wide = [other for other in own if _has_room(entries[other])]
        if kind == "same" and shared and own:
            entries[name] = Same(own[which % len(own)])
        elif kind == "part" and shared and wide:
            other = wide[which % len(wide)]
            size = entries[other].lie[1]
            start = which % size
            entries[name] = Part(other, start, 1 + which // 2 % (size - start))
        elif kind == "nested" and nested:
            entries[name] = ({"inner": spec}, [spec, spec], {"inner": [spec]}, [], {})[which % 5]
        else:
            entries[name] = spec
    return StateDict(entries)


def _has_room(spec: Dense) -> bool:
    return spec.dtype not in QUANTIZED and spec.lie[1] > 0 and not (spec.conj or spec.neg)
