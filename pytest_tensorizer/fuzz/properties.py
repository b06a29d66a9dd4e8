"""Rules that hold for every example, as functions that a test can call.

Each takes the subject, an example as `pytest_tensorizer.strategies` draws it, and an empty directory. It returns why
the subject has refused the example, where it may do so, or ""; and raises :class:`Violation`, or what the subject has
raised, if the rule does not hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pytest_tensorizer.formats import Format, claims
from pytest_tensorizer.fuzz.outcome import Violation
from pytest_tensorizer.identity import Difference, differences
from pytest_tensorizer.process.limits import is_out_of_memory
from pytest_tensorizer.prompt_embeds import PromptEmbedsLoader

if TYPE_CHECKING:
    from pytest_tensorizer.strategies import Damaged, Module, Payload, StateDict

_VALUES = frozenset({"bits", "dtype", "shape", "layout", "missing", "extra", "class"})
_NEEDS = {
    "noncontiguous": "noncontiguous",
    "conj": "lazy-views",
    "neg": "lazy-views",
    "shared": "shared-storage",
    "offset": "shared-storage",
    "larger-storage": "shared-storage",
    "name:empty": "any-name",
    "name:long": "any-name",
    "name:control": "any-name",
    "name:reserved": "any-name",
    "name:surrogate": "any-name",
}
"""Trait of an example -> the capability without which a format may refuse it. Those of dtypes have the same name."""


def round_trip(format: Format, example: StateDict, directory: Path) -> str:
    """A state dict comes back with its names, and each tensor with its dtype, its shape and every bit.

    Saving leaves the caller's mapping and tensors as they were. What the format does not claim it may refuse.
    """
    path = directory / f"weights{format.suffix}"
    tensors = example.build()
    given = dict(tensors)
    try:
        format.save(given, path)
        loaded = format.load(path)
    except Exception as error:
        if not (refusal := _refusal(format, example.traits, error)):
            raise
        return refusal
    _assert_none(differences(loaded, example.dense(), facets=_VALUES))
    if list(given) != list(tensors) or any(given[name] is not tensor for name, tensor in tensors.items()):
        raise Violation({"changed the caller's mapping": "saving has changed the caller's mapping"})
    _assert_none(differences(tensors, example.build(), facets=_VALUES), "changed the caller's")
    return ""


def module(format: Format, example: Module, directory: Path) -> str:
    """A module that is saved and loaded into another one of its structure is the same in every facet.

    References that were taken to the target's tensors before loading see the loaded values, and the source is left as
    it was. Buffers that are no part of the state dict may keep the values that they have in the target.
    """
    path = directory / f"module{format.suffix}"
    source, target = example.build(), example.blank()
    held = _tensors(target)
    try:
        format.save_module(source, path)
        format.load_module(target, path)
    except Exception as error:
        if not (refusal := _refusal(format, example.traits, error)):
            raise
        return refusal
    kept = source.state_dict().keys()
    found = [d for d in differences(target, source) if d.name in kept or d.facet not in _VALUES]
    wanted = {name: tensor for name, tensor in _tensors(source).items() if name in kept}
    if not found:  # else a stale reference is no news
        stale = differences({name: held[name] for name in wanted}, wanted, facets=_VALUES)
        found += [Difference(d.name, "aliases", f"a reference taken before loading: {d}") for d in stale]
    _assert_none(found)
    _assert_none(differences(source, example.build()), "changed the source's")
    return ""


def good_tensors(format: Format) -> dict[str, Tensor]:
    """What is in the file that :func:`damaged_file` has seen damaged: a few small tensors, none like another."""
    tensors = {
        "weight": torch.arange(12, dtype=torch.float32).reshape(3, 4),
        "bias": torch.arange(101, 106, dtype=torch.bfloat16),
        "steps": torch.tensor([7, -7], dtype=torch.int64),
    }
    return {n: t for n, t in tensors.items() if claims(format, f"dtype:{str(t.dtype).removeprefix('torch.')}")}


def good_file(format: Format, directory: Path) -> bytes:
    """The file in which `format` saves :func:`good_tensors`."""
    path = directory / f"good{format.suffix}"
    format.save(good_tensors(format), path)
    return path.read_bytes()


def damaged_file(format: Format, example: Damaged, directory: Path) -> str:
    """A damaged file is refused with an exception, within the limits of time and memory.

    A format that claims `verify` lets no damage pass that changes a tensor, its name, dtype or shape. One that does not
    may take changed values for true ones, but not a file whose end is missing.
    """
    path = directory / f"damaged{format.suffix}"
    path.write_bytes(example.data)
    options = {"verify_hash": True} if claims(format, "verify") else {}
    try:
        loaded = format.load(path, **options)
        copies = {name: tensor.clone() for name, tensor in loaded.items()}  # whatever is lazy happens here
    except Exception as error:
        if is_out_of_memory(error):
            raise
        return f"{type(error).__name__}: {error}"
    if options or all(edit.word == "cut" for edit in example.edits):
        _assert_none(differences(copies, good_tensors(format), facets=_VALUES), "accepted")
    return ""


def prompt_embeds(loader: PromptEmbedsLoader, example: Payload, directory: Path) -> str:
    """An embedding comes out dense, on the CPU, in the model's dtype and equal to the original; all else is refused.

    With a ValueError, that is. Nothing makes the loader crash, hang, or allocate without measure.
    """
    try:
        loaded = loader(example.encoded, example.spec)
    except ValueError as error:
        if example.verdict == "accept":
            raise
        return str(error)
    if example.verdict == "reject":
        raise Violation({"accepted it": f"accepted what is no embedding of this model: {example.description}"})
    if not isinstance(loaded, Tensor) or loaded.device.type != "cpu" or loaded.layout != torch.strided:
        kind = f"a {loaded.layout} tensor on {loaded.device}" if isinstance(loaded, Tensor) else type(loaded).__name__
        raise Violation({"not dense on the CPU": f"the loader returned {kind}, not a dense tensor on the CPU"})
    if example.expected is not None:
        _assert_none(differences(loaded, example.expected, name="prompt_embeds", facets=_VALUES))
    elif (loaded.dtype, loaded.shape[1:]) != (example.spec.dtype, (example.spec.hidden_size,)):
        told = f"the loader returned a tensor of {loaded.dtype} and shape {tuple(loaded.shape)} for {example.spec}"
        raise Violation({"not as the model needs it": told})
    return ""


def _refusal(format: Format, traits: Iterable[str], error: Exception) -> str:
    """What `format` need not take of that which has these traits, or "" if there is nothing, or memory was wanting."""
    lacking = unclaimed(format, traits)
    if not lacking or is_out_of_memory(error):
        return ""
    return f"{', '.join(lacking)} ({type(error).__name__}: {error})"


def unclaimed(format: Format, traits: Iterable[str]) -> list[str]:
    """The capabilities that something with these traits needs and `format` does not claim, sorted."""
    needed = {_NEEDS.get(trait, trait if trait.startswith("dtype:") else "") for trait in traits} - {""}
    return sorted(capability for capability in needed if not claims(format, capability))


def _assert_none(found: list[Difference], what: str = "wrong") -> None:
    """Raise a violation that tells the first of the differences in each facet."""
    __tracebackhide__ = True  # what a person is to see of a finding that is run is the call of the rule
    faults: dict[str, str] = {}
    for difference in found:
        faults.setdefault(f"{what} {difference.facet}", str(difference))
    if faults:
        raise Violation(faults)


def _tensors(module: torch.nn.Module) -> dict[str, Tensor]:
    named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    return {name: tensor.detach() for name, tensor in named}
