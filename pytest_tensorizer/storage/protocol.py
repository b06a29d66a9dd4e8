"""Where the bytes lie."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, runtime_checkable


@runtime_checkable
class Storage(Protocol):
    """A place that keeps objects under keys (relative names with `/`)."""

    name: str

    def uri(self, key: str) -> str:
        """How a format that knows this kind of storage names the object: a path, or `s3://bucket/key`."""

    def access(self) -> AbstractContextManager[None]:
        """While it is entered, code in this process finds endpoint and credentials in the environment."""

    def put(self, key: str, path: Path) -> None:
        """Store the file `path` as `key`."""

    def get(self, key: str, path: Path) -> None:
        """Fetch `key` into the new file `path`. Raises FileNotFoundError where there is no such object."""

    def read(self, key: str) -> bytes:
        """The bytes of `key`. Raises FileNotFoundError where there is no such object."""
