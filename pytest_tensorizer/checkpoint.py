"""Weights written once, in one format at one storage, and the model that they belong to."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_tensorizer.formats import Format, claims
from pytest_tensorizer.storage import Storage

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class WeightsFile:
    """An object at a storage that a format wrote and can open again.

    A format that claims `s3` is given the `s3://` URI and finds endpoint and credentials in the environment; for
    any other one the object travels through a temporary file.
    """

    format: Format
    storage: Storage
    key: str

    @property
    def uri(self) -> str:
        """A path for the local disk, `s3://bucket/key` for S3."""
        return self.storage.uri(self.key)

    @classmethod
    def write(
        cls, content: nn.Module | Mapping[str, Tensor], format: Format, storage: Storage, key: str, **options: Any
    ) -> WeightsFile:
        """Write a module (with `format.save_module`) or a state dict (with `format.save`) to `storage`.

        `options` go to the format. Errors are those of the format and the storage.
        """
        file = cls(format, storage, key)
        with file._location(writing=True) as target:
            if isinstance(content, Mapping):
                format.save(content, target, **options)
            else:
                format.save_module(content, target, **options)
        return file

    def load(self, **options: Any) -> dict[str, Tensor]:
        """The state dict in the file; `options` go to `format.load`."""
        with self.opened() as source:
            return self.format.load(source, **options)

    def load_module(self, module: nn.Module, **options: Any) -> None:
        """Load into `module`; `options` go to `format.load_module`."""
        with self.opened() as source:
            self.format.load_module(module, source, **options)

    def read(self) -> bytes:
        """The bytes as the storage has them."""
        return self.storage.read(self.key)

    def opened(self) -> AbstractContextManager[str]:
        """The location to hand to the format: a path, or an `s3://` URI while its credentials are in reach."""
        return self._location(writing=False)

    @contextmanager
    def _location(self, *, writing: bool) -> Iterator[str]:
        if self._direct:
            with self.storage.access():
                yield self.uri
            return
        with tempfile.TemporaryDirectory(prefix="pytest-tensorizer-") as directory:
            path = Path(directory, Path(self.key).name)
            if not writing:
                self.storage.get(self.key, path)
            yield str(path)
            if writing:
                self.storage.put(self.key, path)

    @property
    def _direct(self) -> bool:
        return self.storage.name == "local" or claims(self.format, self.storage.name)


@dataclass(frozen=True)
class Checkpoint:
    """A model written once: `directory` has its config and tokenizer, `weights` its parameters and buffers."""

    directory: Path
    weights: WeightsFile

    def __str__(self) -> str:
        return f"{self.directory.name} as {self.weights.format.name} at {self.weights.storage.name}"
