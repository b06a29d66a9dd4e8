"""Prompt-embeds loaders with one fault each, on top of the reference loader."""

from __future__ import annotations

import base64
import io

import torch
from torch import Tensor

from pytest_tensorizer.prompt_embeds import EmbedsSpec, load_prompt_embeds


def ignores_device_tag(payload: bytes, spec: EmbedsSpec) -> Tensor:
    """Loads a tensor to the device that it was saved on, whether that exists here or not."""
    checked = load_prompt_embeds(payload, spec)
    loaded = torch.load(io.BytesIO(base64.b64decode(payload)), weights_only=True)
    return checked if loaded.layout != torch.strided or loaded.dim() != 2 else loaded.to(spec.dtype)
