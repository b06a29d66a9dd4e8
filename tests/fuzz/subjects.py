"""What is searched here: numbers that need no torch, and the formats and loaders with one fault that are not in
`tests/faulty/`: no check of the suite is named for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from pytest_tensorizer.formats.safetensors import SafetensorsFormat
from pytest_tensorizer.formats.torch import TorchFormat
from pytest_tensorizer.prompt_embeds import EmbedsSpec, load_prompt_embeds


@dataclass(frozen=True)
class Number:
    """An example with traits, as those of `pytest_tensorizer.strategies` have them."""

    value: int

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"even" if self.value % 2 == 0 else "odd"})


def numbers(least: int = 0, most: int = 10_000) -> st.SearchStrategy[Number]:
    return st.integers(least, most).map(Number)


class Saving(TorchFormat):
    """Saves what `changed` makes of the tensors."""

    def changed(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        raise NotImplementedError

    def save(self, tensors: Mapping[str, Tensor], target: Any, **options: Any) -> None:
        super().save(self.changed(dict(tensors)), target, **options)


class AddsOne(Saving):
    name = "adds-one"

    def changed(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {**tensors, "format": torch.zeros(1)}


class Widens(Saving):
    """Stores bfloat16 as float32, which has all of its values."""

    name = "widens"

    def changed(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {n: t.to(torch.float32) if t.dtype is torch.bfloat16 else t for n, t in tensors.items()}


class FlipsABit(Saving):
    """Changes the lowest bit of the first element of each tensor."""

    name = "flips-a-bit"

    def changed(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        copies = {name: tensor.clone() for name, tensor in tensors.items()}
        for tensor in copies.values():
            if tensor.numel():
                tensor.view(-1).view(torch.uint8)[0] ^= 1
        return copies


class ReversesValues(Saving):
    """Exchanges the tensors: the first name has the last one."""

    name = "reverses-values"

    def changed(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return dict(zip(tensors, reversed(list(tensors.values())), strict=True))


class Flattens(Saving):
    name = "flattens"

    def changed(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: tensor.reshape(-1) for name, tensor in tensors.items()}


class SortsMapping(TorchFormat):
    """Leaves the caller's mapping with the same tensors in another order."""

    name = "sorts-mapping"

    def save(self, tensors: Mapping[str, Tensor], target: Any, **options: Any) -> None:
        super().save(dict(tensors), target, **options)
        for name in sorted(tensors):
            tensors[name] = tensors.pop(name)  # type: ignore[index, attr-defined]


class ReplacesInMapping(TorchFormat):
    """Puts copies into the caller's mapping."""

    name = "replaces-in-mapping"

    def save(self, tensors: Mapping[str, Tensor], target: Any, **options: Any) -> None:
        super().save(dict(tensors), target, **options)
        for name in tensors:
            tensors[name] = tensors[name].clone()  # type: ignore[index]


class ZeroesTensors(TorchFormat):
    """Wipes the caller's tensors when they are saved."""

    name = "zeroes-tensors"

    def save(self, tensors: Mapping[str, Tensor], target: Any, **options: Any) -> None:
        super().save(tensors, target, **options)
        for tensor in tensors.values():
            tensor.zero_()


class RefusesBfloat16(TorchFormat):
    """Claims bfloat16, and does not take it."""

    name = "refuses-bfloat16"

    def save(self, tensors: Mapping[str, Tensor], target: Any, **options: Any) -> None:
        if any(tensor.dtype is torch.bfloat16 for tensor in tensors.values()):
            raise TypeError("no bfloat16")
        super().save(tensors, target, **options)


class Limited(RefusesBfloat16):
    """Claims float32 in contiguous tensors under plain names, and refuses bfloat16, as it may."""

    name = "limited"
    capabilities = frozenset({"dtype:float32"})


class RunsOutOfMemory(Limited):
    """Needs more than there is for what it does not claim."""

    name = "runs-out-of-memory"

    def save(self, tensors: Mapping[str, Tensor], target: Any, **options: Any) -> None:
        raise MemoryError


class LeavesOutBuffers(TorchFormat):
    name = "leaves-out-buffers"

    def load_module(self, module: nn.Module, source: Any, **options: Any) -> None:
        loaded = self.load(source)
        parameters = dict(module.named_parameters(remove_duplicate=False))
        module.load_state_dict({n: t for n, t in loaded.items() if n in parameters}, strict=False)


class HalvesSource(TorchFormat):
    """Halves the weights of the module that it saves, when they are written."""

    name = "halves-source"

    def save_module(self, module: nn.Module, target: Any, **options: Any) -> None:
        super().save_module(module, target, **options)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.div_(2)


class ThawsSource(TorchFormat):
    name = "thaws-source"

    def save_module(self, module: nn.Module, target: Any, **options: Any) -> None:
        super().save_module(module, target, **options)
        module.requires_grad_(True)


class VerifiesNothing(SafetensorsFormat):
    """Claims to verify, takes the option, and looks at no digest: safetensors has none."""

    name = "verifies-nothing"
    capabilities = SafetensorsFormat.capabilities | {"verify"}

    def load(self, source: Any, *, verify_hash: bool = False, **options: Any) -> dict[str, Tensor]:
        return super().load(source, **options)


class TakesHalfFiles(TorchFormat):
    """Makes zeros of what is missing at the end of a file."""

    name = "takes-half-files"

    def load(self, source: Any, **options: Any) -> dict[str, Tensor]:
        try:
            return super().load(source, **options)
        except (RuntimeError, OSError, EOFError):
            return {"weight": torch.zeros(3, 4)}


def accepts_anything(payload: bytes, spec: EmbedsSpec) -> Tensor:
    try:
        return load_prompt_embeds(payload, spec)
    except ValueError:
        return torch.zeros(1, spec.hidden_size, dtype=spec.dtype)


def raises_type_error(payload: bytes, spec: EmbedsSpec) -> Tensor:
    try:
        return load_prompt_embeds(payload, spec)
    except ValueError as error:
        raise TypeError(str(error)) from None


def returns_float64(payload: bytes, spec: EmbedsSpec) -> Tensor:
    return load_prompt_embeds(payload, spec).to(torch.float64)


def returns_sparse(payload: bytes, spec: EmbedsSpec) -> Tensor:
    return load_prompt_embeds(payload, spec).to_sparse()


def returns_a_list(payload: bytes, spec: EmbedsSpec) -> Any:
    return load_prompt_embeds(payload, spec).tolist()


def reverses_rows(payload: bytes, spec: EmbedsSpec) -> Tensor:
    return load_prompt_embeds(payload, spec).flip(0)


def refuses_everything(payload: bytes, spec: EmbedsSpec) -> Tensor:
    raise ValueError("not today")
