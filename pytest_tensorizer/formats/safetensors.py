"""Hugging Face's safetensors, through its torch front end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from pytest_tensorizer.formats.protocol import Location
from pytest_tensorizer.resolve import distribution_version

if TYPE_CHECKING:
    from torch import Tensor, nn

_DTYPES = (
    "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 "
    "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2"
).split()


class SafetensorsFormat:
    """`save_file`, `load_file`, `save_model` and `load_model`.

    Options of saving: `metadata` (a dict of str) and, for modules, `force_contiguous`. Options of loading:
    `device`, `backend` ("mmap" or "pread") and, for modules, `strict`. "Tensors need to be contiguous and
    dense", says its documentation, so `noncontiguous` is not claimed.

    Errors are those of safetensors.
    """

    name = "safetensors"
    suffix = ".safetensors"
    imports = ("safetensors.torch",)
    capabilities = frozenset({"bytes", "backend"}) | {f"dtype:{dtype}" for dtype in _DTYPES}

    @property
    def version(self) -> str:
        return distribution_version("safetensors")

    def save(self, tensors: Mapping[str, Tensor], target: Location, **options: Any) -> None:
        from safetensors.torch import save_file

        save_file(dict(tensors), target, **options)

    def load(self, source: Location, **options: Any) -> dict[str, Tensor]:
        from safetensors.torch import load_file

        return cast("dict[str, Tensor]", load_file(source, **options))

    def save_module(self, module: nn.Module, target: Location, **options: Any) -> None:
        from safetensors.torch import save_model

        save_model(module, target, **options)

    def load_module(self, module: nn.Module, source: Location, **options: Any) -> None:
        from safetensors.torch import load_model

        load_model(module, source, **options)

    def to_bytes(self, tensors: Mapping[str, Tensor], **options: Any) -> bytes:
        from safetensors.torch import save

        return cast(bytes, save(dict(tensors), **options))

    def from_bytes(self, data: bytes) -> dict[str, Tensor]:
        from safetensors.torch import load

        return cast("dict[str, Tensor]", load(data))
