"""Good files of each format, as the real libraries write them."""

from __future__ import annotations

import functools
import io
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save
from tensorizer import EncryptionParams, TensorSerializer
from torch import Tensor

DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.bool, torch.complex64)


def tensors() -> dict[str, Tensor]:
    """Some of several dtypes and shapes, with names that are not ASCII, or no identifiers; their bytes all differ."""
    found = {
        "weight": torch.arange(1, 7, dtype=torch.float32).reshape(2, 3),
        'Gewicht "ß"{}': torch.arange(3, dtype=torch.bfloat16),
        "空": torch.zeros(0, 3),
        "scalar": torch.tensor(5),
    }
    return found | {f"layers.{n}": torch.full((n + 1,), n, dtype=dtype) for n, dtype in enumerate(DTYPES)}


def many() -> dict[str, Tensor]:
    return {f"layers.{n}.weight": torch.full((4,), n) for n in range(300)}


def tensorizer(state: dict[str, Tensor], encryption: EncryptionParams | None = None) -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "model.tensors"
        serializer = TensorSerializer(str(path), encryption=encryption)
        serializer.write_state_dict(state)
        serializer.close()
        return path.read_bytes()


def safetensors(state: dict[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    return save(state, metadata)


def torch_zip(value: object) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def torch_legacy(value: object, protocol: int = 2) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=False, pickle_protocol=protocol)
    return file.getvalue()


@functools.cache
def files() -> dict[str, bytes]:
    """Name -> content of a good file."""
    state = tensors()
    return {
        "tensorizer": tensorizer(state),
        "tensorizer-many": tensorizer(many()),
        "tensorizer-meta": tensorizer({"weight": torch.ones(2), "meta": torch.zeros(4, device="meta")}),
        "safetensors": safetensors(state, {"format": "pt", "empty": "", "§": '"\\'}),
        "safetensors-many": safetensors(many()),
        "safetensors-none": safetensors({}),
        "zip": torch_zip(state),
        "zip-many": torch_zip(many()),
        "legacy": torch_legacy(state),
        "legacy-many": torch_legacy(many()),
        "legacy-protocol-4": torch_legacy(state, 4),
        "legacy-module": torch_legacy(torch.nn.Linear(2, 3)),
        "text": b"no checkpoint at all",
    }


def small(name: str) -> bytes:
    """A small file of a format, for what is tried many times."""
    state = {"a": torch.arange(1, 7, dtype=torch.float32).reshape(2, 3), "b": torch.arange(8), "c": torch.ones(3)}
    if name == "legacy":
        # Its storages stand in the order of their addresses: with more than one, no two runs write the same.
        return torch_legacy({"b": state["b"]})
    writers = {"tensorizer": tensorizer, "safetensors": safetensors, "zip": torch_zip}
    return writers[name](state)
