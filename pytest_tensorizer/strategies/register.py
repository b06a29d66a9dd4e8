"""Tensors for `st.from_type`: only if somebody asks for it, since Hypothesis has one registry for a whole process."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from pytest_tensorizer.strategies.tensors import tensors


def register() -> None:
    """From now on, `st.from_type(torch.Tensor)` and `nn.Parameter`, and whatever is annotated so, draw any tensor.

    Call it in a conftest.py, say. Strategies that were registered for these types before are replaced.
    """
    st.register_type_strategy(torch.Tensor, tensors())
    st.register_type_strategy(torch.nn.Parameter, tensors(requires_grad=st.booleans(), cls=torch.nn.Parameter))
