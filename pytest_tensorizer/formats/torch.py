"""`torch.save` and `torch.load`: the baseline that engines are compared on, since no other library is in the way."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from pytest_tensorizer.formats.protocol import Location
from pytest_tensorizer.resolve import distribution_version

if TYPE_CHECKING:
    from torch import Tensor, nn

_DTYPES = (
    "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64 "
    "complex32 complex64 complex128 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu"
).split()


class TorchFormat:
    """A zip archive written by `torch.save` and read with `weights_only=True`.

    Options of loading: those of `torch.load`; `device` is its `map_location`, and "cpu" by default.
    """

    name = "torch"
    suffix = ".pt"
    capabilities = frozenset({"bytes", "noncontiguous", "lazy-views", "shared-storage", "any-name"}) | {
        f"dtype:{dtype}" for dtype in _DTYPES
    }

    @property
    def version(self) -> str:
        return distribution_version("torch")

    def save(self, tensors: Mapping[str, Tensor], target: Any, **options: Any) -> None:
        import torch

        torch.save(dict(tensors), target, **options)

    def load(self, source: Any, *, device: str = "cpu", **options: Any) -> dict[str, Tensor]:
        import torch

        return cast("dict[str, Tensor]", torch.load(source, map_location=device, weights_only=True, **options))

    def save_module(self, module: nn.Module, target: Location, **options: Any) -> None:
        self.save(module.state_dict(), target, **options)

    def load_module(self, module: nn.Module, source: Location, **options: Any) -> None:
        module.load_state_dict(self.load(source, **options))

    def to_bytes(self, tensors: Mapping[str, Tensor], **options: Any) -> bytes:
        buffer = io.BytesIO()
        self.save(tensors, buffer, **options)
        return buffer.getvalue()

    def from_bytes(self, data: bytes, **options: Any) -> dict[str, Tensor]:
        return self.load(io.BytesIO(data), **options)
