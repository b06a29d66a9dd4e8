"""Formats with one fault each, on top of one that has none of them."""

from __future__ import annotations

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
