"""What a weight format has to be able to do, to be held to the suite."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor, nn

Location = str | os.PathLike[str]
"""A path of the local file system; also an `s3://bucket/key` URI for a format that claims `s3`."""

CAPABILITIES: dict[str, str] = {
    "s3": "opens and writes s3:// URIs itself, with the credentials and endpoint of the AWS_* variables",
    "bytes": "has to_bytes(tensors) and from_bytes(data)",
    "noncontiguous": "saves transposed, stepped and expanded tensors",
    "lazy-views": "saves conjugate and negative views",
    "lazy": "load(lazy_load=True) reads tensors on demand",
    "readers": "load(num_readers=n) reads with n threads",
    "verify": "load(verify_hash=True) checks stored digests",
    "filter": "load(filter_func=f) loads a selection",
    "cast": "load(dtype=d) casts floating-point tensors",
    "encryption": "save(encryption=…) and load(encryption=…)",
    "backend": "load(backend=…) chooses how the file is read",
    "shared-storage": "saves tensors that share memory, or lie in a larger storage than they need",
    "any-name": "saves tensors under names that are empty, reserved, unprintable or longer than 200 characters",
    "dtype:NAME": "stores torch.NAME; a format that claims none is held to DEFAULT_DTYPES",
}
"""What a format may claim beyond the protocol. A check of something that is not claimed is skipped by name."""

DEFAULT_DTYPES = frozenset(
    {"bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"}
)
"""The dtypes that every format is held to, unless it claims its own as `dtype:NAME`: those of ordinary checkpoints."""


@runtime_checkable
class Format(Protocol):
    """How tensors become bytes and come back. Structural: a user's class need not inherit from this one.

    `version` is optional; without it the version of the distribution that defines the class is reported. So is
    `requirements`, a mapping from a capability to the program or library ("curl", "libsodium") that it needs: where
    that is missing, checks of the capability are skipped by its name. And so is `imports`, the names of modules that
    it imports only when it is used: clean processes find them imported.
    A format without `save_module` and `load_module` is one for state dicts only, and module checks are skipped.
    """

    name: str
    suffix: str
    capabilities: frozenset[str]

    def save(self, tensors: Mapping[str, Tensor], target: Location, **options: Any) -> None:
        """Write `tensors` to `target`, replacing what is there. What it cannot store it must refuse."""

    def load(self, source: Location, **options: Any) -> dict[str, Tensor]:
        """Read everything back, on the CPU unless `device=` says otherwise."""

    def save_module(self, module: nn.Module, target: Location, **options: Any) -> None:
        """Write the parameters and buffers of `module`."""

    def load_module(self, module: nn.Module, source: Location, **options: Any) -> None:
        """Load into an existing `module` of the same architecture, whose values may be anything."""


def claims(format: Format, capability: str) -> bool:
    """Whether `format` claims `capability`; knows the default of the `dtype:` family."""
    claimed = format.capabilities
    if capability.startswith("dtype:") and not any(entry.startswith("dtype:") for entry in claimed):
        return capability.removeprefix("dtype:") in DEFAULT_DTYPES
    return capability in claimed
