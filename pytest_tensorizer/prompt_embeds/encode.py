"""Payloads as clients send them: base64 of what `torch.save` writes, on whatever device the tensor lay."""

from __future__ import annotations

import base64
import contextlib
import io
import threading
from collections.abc import Iterator
from typing import Any

import torch

# Held while torch's function is replaced. Reentrant, because saving an object runs the object's own code.
_replacing = threading.RLock()


def encode(obj: object, *, location: str | None = None, legacy: bool = False) -> bytes:
    """The base64 payload of `obj`, a tensor or any other object that `torch.save` takes.

    Args:
        location: the device tag that every storage claims to have been saved under, such as "mps" or
            "cuda:3". No device of that kind is needed or touched. None leaves the tag that is true.
        legacy: write the container that torch used before its zip archives, and still reads. (Except for
            8-bit floats: torch 2.13 writes them there, and with `weights_only=True` fails to read them.)

    Raises:
        ValueError: `location` is given and `obj` has no storage to carry it (a meta tensor has none).
        TypeError: `location` is no string.
    """
    buffer = io.BytesIO()
    if location is None:
        torch.save(obj, buffer, _use_new_zipfile_serialization=not legacy)
    else:
        with foreign_location(location) as tagged:
            torch.save(obj, buffer, _use_new_zipfile_serialization=not legacy)
        if not tagged:
            raise ValueError(
                f"location={location!r} found no storage in a {type(obj).__name__}: encode a tensor with "
                "data, or leave location out"
            )
    return base64.b64encode(buffer.getvalue())


@contextlib.contextmanager
def foreign_location(location: str) -> Iterator[list[str]]:
    """While this lasts, `torch.save` in this thread tags every storage as saved on `location`.

    Other threads go on saving with the tags that are true, but have to wait to enter this themselves. The
    list that is yielded grows by the true tag of each storage whose tag was replaced.

    Raises:
        TypeError: `location` is no string.
        ValueError: `location` is empty.
    """
    if not isinstance(location, str):
        raise TypeError(f"location={location!r} is no string: pass a device tag such as 'mps' or 'cuda:3'")
    if not location:
        raise ValueError(f"location={location!r} is no device tag: pass one such as 'mps' or 'cuda:3'")
    replaced: list[str] = []
    owner = threading.get_ident()
    with _replacing:
        original = torch.serialization.location_tag

        def location_tag(storage: Any) -> str:
            true_tag = str(original(storage))
            if threading.get_ident() != owner:
                return true_tag
            replaced.append(true_tag)
            return location

        # Both containers look this name up in the module for each storage. A tagger registered with torch
        # would do the same through a public door, but can never be unregistered.
        torch.serialization.location_tag = location_tag
        try:
            yield replaced
        finally:
            torch.serialization.location_tag = original
