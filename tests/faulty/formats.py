"""Formats with one fault each, on top of one that has none of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from pytest_tensorizer.formats.torch import TorchFormat


class Healthy(TorchFormat):
    """No fault: nothing may be found in it."""

    name = "healthy"


class DropsLastTensor(TorchFormat):
    """Does not write the last of several tensors."""

    name = "drops-last"

    def save(self, tensors: Mapping[str, Tensor], target: Any, **options: Any) -> None:
        kept = list(tensors.items())
        super().save(dict(kept[:-1] if len(kept) > 1 else kept), target, **options)


class TransposesSquares(TorchFormat):
    """Takes square matrices for column-major ones."""

    name = "transposes-squares"

    def load(self, source: Any, **options: Any) -> dict[str, Tensor]:
        loaded = super().load(source, **options)
        return {n: t.t() if t.dim() == 2 and t.shape[0] == t.shape[1] else t for n, t in loaded.items()}


class ExchangesAlike(TorchFormat):
    """Gives the first of two tensors of one shape and dtype the values of the last."""

    name = "exchanges-alike"

    def load(self, source: Any, **options: Any) -> dict[str, Tensor]:
        loaded = super().load(source, **options)
        alike = {(t.shape, t.dtype): t for t in loaded.values()}
        return {name: alike[tensor.shape, tensor.dtype] for name, tensor in loaded.items()}


class LowersNames(TorchFormat):
    """Knows no capital letters."""

    name = "lowers-names"

    def save(self, tensors: Mapping[str, Tensor], target: Any, **options: Any) -> None:
        super().save({name.lower(): tensor for name, tensor in tensors.items()}, target, **options)


class LosesTails(TorchFormat):
    """Reads no more than 64 KiB of a tensor."""

    name = "loses-tails"

    def load(self, source: Any, **options: Any) -> dict[str, Tensor]:
        loaded = super().load(source, **options)
        for tensor in loaded.values():
            if tensor.nbytes > 1 << 16:
                tensor.view(-1)[(1 << 16) // tensor.itemsize :] = 0
        return loaded


class CachesByPath(TorchFormat):
    """Remembers what a file held, whatever has become of it."""

    name = "caches-by-path"

    def __init__(self) -> None:
        self._cache: dict[str, dict[str, Tensor]] = {}

    def load(self, source: Any, **options: Any) -> dict[str, Tensor]:
        if str(source) not in self._cache:
            self._cache[str(source)] = super().load(source, **options)
        return self._cache[str(source)]


class Downcasts(TorchFormat):
    """Stores float32 as bfloat16 and hands out float32 again."""

    name = "downcasts"

    def save(self, tensors: Mapping[str, Tensor], target: Any, **options: Any) -> None:
        narrow = {
            name: tensor.to(torch.bfloat16).to(torch.float32) if tensor.dtype is torch.float32 else tensor
            for name, tensor in tensors.items()
        }
        super().save(narrow, target, **options)


class Unties(TorchFormat):
    """Gives every name of a tied weight a tensor of its own."""

    name = "unties"

    def load_module(self, module: nn.Module, source: Any, **options: Any) -> None:
        super().load_module(module, source, **options)
        for owner in module.modules():
            for name, parameter in list(owner.named_parameters(recurse=False)):
                setattr(owner, name, nn.Parameter(parameter.detach().clone(), parameter.requires_grad))


class Replaces(TorchFormat):
    """Puts new Parameter objects into the module, so that references taken before go stale."""

    name = "replaces"

    def load_module(self, module: nn.Module, source: Any, **options: Any) -> None:
        new: dict[int, nn.Parameter] = {}
        for owner in module.modules():
            for name, parameter in list(owner.named_parameters(recurse=False)):
                fresh = new.setdefault(id(parameter), nn.Parameter(parameter.detach().clone(), parameter.requires_grad))
                setattr(owner, name, fresh)
        super().load_module(module, source, **options)


class LosesOffsets(TorchFormat):
    """Writes each tensor as if it began where its storage does."""

    name = "loses-offsets"

    def save(self, tensors: Mapping[str, Tensor], target: Any, **options: Any) -> None:
        from_zero = {name: tensor.as_strided(tensor.shape, tensor.stride(), 0) for name, tensor in tensors.items()}
        super().save(from_zero, target, **options)


class EmptiesTheCallers(TorchFormat):
    """Takes each tensor out of the caller's mapping once it is written."""

    name = "empties-the-callers"

    def save(self, tensors: Mapping[str, Tensor], target: Any, **options: Any) -> None:
        super().save(tensors, target, **options)
        if isinstance(tensors, dict):
            tensors.clear()


class Unfreezes(TorchFormat):
    """Makes each parameter trainable."""

    name = "unfreezes"

    def load_module(self, module: nn.Module, source: Any, **options: Any) -> None:
        super().load_module(module, source, **options)
        for parameter in module.parameters():
            if parameter.is_floating_point() or parameter.is_complex():
                parameter.requires_grad_(True)


class ClaimsToVerify(TorchFormat):
    """Has an option that verifies, and does nothing with it."""

    name = "claims-to-verify"
    capabilities = TorchFormat.capabilities | {"verify"}

    def load(self, source: Any, *, verify_hash: bool = False, **options: Any) -> dict[str, Tensor]:
        return super().load(source, **options)


class TakesBrokenForEmpty(TorchFormat):
    """Takes a file that it cannot read for one without tensors."""

    name = "takes-broken-for-empty"

    def load(self, source: Any, **options: Any) -> dict[str, Tensor]:
        try:
            return super().load(source, **options)
        except RuntimeError:
            return {}


class DiesOfBroken(TorchFormat):
    """Ends its process where it is to raise."""

    name = "dies-of-broken"

    def load(self, source: Any, **options: Any) -> dict[str, Tensor]:
        try:
            return super().load(source, **options)
        except RuntimeError:
            os.abort()
