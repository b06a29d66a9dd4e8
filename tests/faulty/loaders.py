"""Prompt-embeds loaders with one fault each, on top of the reference loader."""

from __future__ import annotations

import base64
import io

import torch
from torch import Tensor

from pytest_tensorizer.prompt_embeds import EmbedsSpec, load_prompt_embeds
from pytest_tensorizer.prompt_embeds.rejection import PromptEmbedsRejected


def ignores_device_tag(payload: bytes, spec: EmbedsSpec) -> Tensor:
    """Loads a tensor to the device that it was saved on, whether that exists here or not."""
    checked = load_prompt_embeds(payload, spec)
    loaded = torch.load(io.BytesIO(base64.b64decode(payload)), weights_only=True)
    return checked if loaded.layout != torch.strided or loaded.dim() != 2 else loaded.to(spec.dtype)


def takes_what_is_not_finite(payload: bytes, spec: EmbedsSpec) -> Tensor:
    """Takes NaN and infinities, and values that become infinite in the model's dtype."""
    try:
        return load_prompt_embeds(payload, spec)
    except PromptEmbedsRejected as rejected:
        if "not finite" not in str(rejected):
            raise
    loaded = torch.load(io.BytesIO(base64.b64decode(payload)), map_location="cpu", weights_only=True)
    return loaded.to(torch.float64).to_dense().to(spec.dtype).reshape(-1, spec.hidden_size)
