"""Warnings that torch gives once a process, about dtypes and layouts that nobody has asked for: they are drawn."""

from __future__ import annotations

import warnings
from typing import Any

import torch


def use_up_torch_warnings() -> None:
    """Let torch say once, to nobody, that CSR is in beta, complex32 experimental, and quantization deprecated.

    Where warnings are errors, the first example that has one of these would fail, and not fail again.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.ones(1, 1, device="cpu").to_sparse_csr()
        torch.empty(0, dtype=torch.complex32, device="cpu")
        # Not quantize_per_tensor: it starts threads, and what torch does with these hangs in a forked child.
        make: Any = torch._empty_affine_quantized
        make((0,), scale=1.0, zero_point=0, dtype=torch.qint8, device="cpu")


# When this is imported, and not when the first tensor is made: there may be other threads then, and the filters of
# warnings are those of all.
use_up_torch_warnings()
