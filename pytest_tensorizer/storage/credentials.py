"""Keeping the user's own S3 credentials out of reach of the code under test, so that no test reaches a real bucket."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def environment(changes: Mapping[str, str], *, without: tuple[str, ...] = ()) -> Iterator[None]:
    """Set the environment variables `changes`, unset those whose names begin with one of `without`; put all back."""
    before = dict(os.environ)
    try:
        for name in before:
            if name.startswith(without):
                del os.environ[name]
        os.environ.update(changes)
        yield
    finally:
        # Only what was touched here is put back: a test may have set others of its own in the meantime.
        for name in {*changes, *(name for name in before if name.startswith(without))}:
            if name in before:
                os.environ[name] = before[name]
            else:
                os.environ.pop(name, None)


@contextmanager
def hidden(extra: Mapping[str, str] | None = None, *, directory: Path | None = None) -> Iterator[None]:
    """No `AWS_*` variable, no `~/.aws`, no `~/.s3cfg` and no instance metadata; then `extra` variables on top.

    An empty home is made in `directory`, where something cleans up after a process that is killed.
    """
    with tempfile.TemporaryDirectory(prefix="pytest-tensorizer-home-", dir=directory) as home:
        nowhere = os.path.join(home, "none")
        changes = {
            "HOME": home,
            "USERPROFILE": home,
            "AWS_CONFIG_FILE": nowhere,
            "AWS_SHARED_CREDENTIALS_FILE": nowhere,
            "AWS_EC2_METADATA_DISABLED": "true",
            "BOTO_CONFIG": nowhere,
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }
        with environment({**changes, **(extra or {})}, without=("AWS_",)), _without_s3cfg():
            yield


@contextmanager
def _without_s3cfg() -> Iterator[None]:
    """Where tensorizer is already imported it has worked out the path of `~/.s3cfg`, and may have read the file."""
    stream_io: Any = sys.modules.get("tensorizer.stream_io")
    paths = getattr(stream_io, "_s3_default_config_paths", None)
    if paths is None:
        yield
        return
    forget = getattr(getattr(stream_io, "_get_s3cfg_values", None), "cache_clear", lambda: None)
    stream_io._s3_default_config_paths = ()
    forget()
    try:
        yield
    finally:
        stream_io._s3_default_config_paths = paths
        forget()
