"""CoreWeave's tensorizer, through its public classes and nothing else."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pytest_tensorizer.formats.protocol import Location
from pytest_tensorizer.resolve import distribution_version

if TYPE_CHECKING:
    from torch import Tensor, nn

# All that TensorSerializer knows: everything torch had when 2.12 came out, but for the quantized dtypes.
_DTYPES = (
    "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64 "
    "complex32 complex64 complex128 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu "
    "bits8 bits16 bits1x8 bits2x4 bits4x2 "
    "int1 int2 int3 int4 int5 int6 int7 uint1 uint2 uint3 uint4 uint5 uint6 uint7"
).split()


class TensorizerFormat:
    """`TensorSerializer` and `TensorDeserializer`.

    Options of saving: `encryption` (an `EncryptionParams`), `limit_cpu_concurrency`, and for modules
    `remove_tensors` and `include_non_persistent_buffers`. Options of loading: `device` (here "cpu" by default),
    `dtype`, `lazy_load`, `num_readers`, `verify_hash`, `filter_func` and `encryption` (a `DecryptionParams`).
    `stream` is a dict of arguments for `tensorizer.stream_io.open_stream`, such as `{"s3_endpoint": …}`; without
    it a location is passed on as it is.

    Errors are those of tensorizer.
    """

    name = "tensorizer"
    suffix = ".tensors"
    capabilities = frozenset(
        {"s3", "bytes", "noncontiguous", "lazy", "readers", "verify", "filter", "cast", "encryption"}
    ) | {f"dtype:{dtype}" for dtype in _DTYPES}
    requirements: Mapping[str, str] = {"s3": "curl", "encryption": "libsodium"}
    imports = ("tensorizer",)

    @property
    def version(self) -> str:
        return distribution_version("tensorizer")

    def save(
        self, tensors: Mapping[str, Tensor], target: Location, *, stream: dict[str, Any] | None = None, **options: Any
    ) -> None:
        serializer = self._serializer(_opened(target, "wb+", stream), options)
        try:
            serializer.write_state_dict(dict(tensors))
        finally:
            serializer.close()

    def load(self, source: Location, *, stream: dict[str, Any] | None = None, **options: Any) -> dict[str, Tensor]:
        with self._deserializer(_opened(source, "rb", stream), options) as deserializer:
            return {name: deserializer[name] for name in deserializer}

    def save_module(
        self,
        module: nn.Module,
        target: Location,
        *,
        stream: dict[str, Any] | None = None,
        remove_tensors: bool = False,
        include_non_persistent_buffers: bool = True,
        **options: Any,
    ) -> None:
        serializer = self._serializer(_opened(target, "wb+", stream), options)
        try:
            serializer.write_module(
                module, remove_tensors, include_non_persistent_buffers=include_non_persistent_buffers
            )
        finally:
            serializer.close()

    def load_module(
        self, module: nn.Module, source: Location, *, stream: dict[str, Any] | None = None, **options: Any
    ) -> None:
        with self._deserializer(_opened(source, "rb", stream), options) as deserializer:
            deserializer.load_into_module(module)

    def to_bytes(self, tensors: Mapping[str, Tensor], **options: Any) -> bytes:
        buffer = _KeptOpen()
        serializer = self._serializer(buffer, options)
        try:
            serializer.write_state_dict(dict(tensors))
        finally:
            serializer.close()
        return buffer.getvalue()

    def from_bytes(self, data: bytes, **options: Any) -> dict[str, Tensor]:
        with self._deserializer(io.BytesIO(data), options) as deserializer:
            return {name: deserializer[name] for name in deserializer}

    @staticmethod
    def _serializer(file: Any, options: dict[str, Any]) -> Any:
        from tensorizer import TensorSerializer

        return TensorSerializer(file, **options)

    @staticmethod
    def _deserializer(file: Any, options: dict[str, Any]) -> Any:
        from tensorizer import TensorDeserializer

        # The library's default is a CUDA device where one is visible. The suite decides on devices itself.
        return TensorDeserializer(file, **{"device": "cpu", **options})


class _KeptOpen(io.BytesIO):
    """`TensorSerializer.close()` closes the stream that it was given, and with a BytesIO goes what was written."""

    def close(self) -> None:
        pass


def _opened(location: Location, mode: str, stream: dict[str, Any] | None) -> Any:
    """`location` as it is, or the stream that tensorizer opens for it with the arguments `stream`."""
    if stream is None:
        # A pathlib.Path is passed on as a str: to the library `PosixPath("s3:/…")` is a local file.
        return os.fspath(location)
    from tensorizer.stream_io import open_stream

    return open_stream(os.fspath(location), mode, **stream)
