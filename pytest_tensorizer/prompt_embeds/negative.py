"""Tensors whose values are those in memory negated: torch flips their signs only when it reads them, and not always."""

from __future__ import annotations

import torch
from torch import Tensor


def resolve_neg(values: Tensor) -> Tensor:
    """`values` without the negative bit: itself where it has none. 8-bit floats that have it come out as float32.

    torch 2.13 cannot negate 8-bit floats, and loses the sign of a zero where it copies a negative view into another
    dtype.
    """
    if not values.is_neg():
        return values
    in_memory = torch._neg_view(values)
    return (in_memory.to(torch.float32) if values.dtype.itemsize == 1 else in_memory).neg()
