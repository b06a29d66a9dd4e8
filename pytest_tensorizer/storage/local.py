"""A directory of the local file system."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class LocalStorage:
    """Objects are files below `root`, which must exist."""

    name = "local"

    def __init__(self, root: Path) -> None:
        self.root = root

    def __repr__(self) -> str:
        return f"LocalStorage({str(self.root)!r})"

    def path(self, key: str) -> Path:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def uri(self, key: str) -> str:
        return str(self.path(key))

    @contextmanager
    def access(self) -> Iterator[None]:
        yield

    def put(self, key: str, path: Path) -> None:
        shutil.copyfile(path, self.path(key))

    def get(self, key: str, path: Path) -> None:
        shutil.copyfile(self.path(key), path)

    def read(self, key: str) -> bytes:
        return self.path(key).read_bytes()
