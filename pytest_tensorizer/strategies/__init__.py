"""Hypothesis strategies for everything that a serializer, a loader or a server meets. They touch no device.

What they draw has an oracle: the expected bytes come out of what was drawn, never out of the code that is tested. In a
falsifying example Hypothesis shows `build(…)` with a specification, which is code: `from pytest_tensorizer.strategies
import *` is all that it needs.
"""

from __future__ import annotations

import torch

from pytest_tensorizer.prompt_embeds.spec import EmbedsSpec
from pytest_tensorizer.strategies.code import build
from pytest_tensorizer.strategies.damaged import (
    Append,
    Cut,
    Damaged,
    Delete,
    Flip,
    Insert,
    Repeat,
    Replace,
    Swap,
    Write,
    Zero,
    damaged,
)
from pytest_tensorizer.strategies.dense import Dense, Subclass
from pytest_tensorizer.strategies.dtypes import dtypes
from pytest_tensorizer.strategies.modules import Module, module_specs, modules
from pytest_tensorizer.strategies.names import names
from pytest_tensorizer.strategies.payload.payload import Payload
from pytest_tensorizer.strategies.payloads import payloads
from pytest_tensorizer.strategies.profiles import register_profiles
from pytest_tensorizer.strategies.register import register
from pytest_tensorizer.strategies.shapes import shapes
from pytest_tensorizer.strategies.sparse import Compressed, Coo, sparse_tensors
from pytest_tensorizer.strategies.state_dicts import Part, Same, StateDict, state_dict_specs, state_dicts
from pytest_tensorizer.strategies.strides import KINDS as STRIDES
from pytest_tensorizer.strategies.tensors import tensor_specs, tensors

__all__ = [
    "STRIDES",
    "Append",
    "Compressed",
    "Coo",
    "Cut",
    "Damaged",
    "Delete",
    "Dense",
    "EmbedsSpec",
    "Flip",
    "Insert",
    "Module",
    "Part",
    "Payload",
    "Repeat",
    "Replace",
    "Same",
    "StateDict",
    "Subclass",
    "Swap",
    "Write",
    "Zero",
    "build",
    "damaged",
    "dtypes",
    "module_specs",
    "modules",
    "names",
    "payloads",
    "register",
    "register_profiles",
    "shapes",
    "sparse_tensors",
    "state_dict_specs",
    "state_dicts",
    "tensor_specs",
    "tensors",
    "torch",
]
