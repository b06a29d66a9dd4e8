"""How parent, zygote and child talk: messages are pickled tuples, requests have a header and may bring descriptors."""

from __future__ import annotations

import os
import pickle
import selectors
import struct
from collections.abc import Callable, Iterable
from typing import Any

HEADER = struct.Struct("<cQ")
"""A request: its kind, and the length of the payload that follows. A job comes with three descriptors: for the
child's messages, its standard output and its standard error."""
JOB, ABORT, KILL = b"J", b"A", b"K"


class Channel:
    """One end of a connection through which messages leave: tuples, pickled, each after its length."""

    def __init__(self, write: Callable[[bytes], int]) -> None:
        self._write = write
        self._pid = os.getpid()

    def send(self, *message: Any) -> None:
        if os.getpid() != self._pid:
            return  # a fork of the test which came back out of it: it has no say in how the test went
        data = pickle.dumps(message)
        data = struct.pack("<Q", len(data)) + data
        while data:
            data = data[self._write(data) :]


def unframed(buffer: bytearray) -> list[bytes]:
    """Take the whole messages out of `buffer`, where they lie each after its length, and leave the rest."""
    found = []
    while len(buffer) >= 8 and len(buffer) >= (end := 8 + struct.unpack_from("<Q", buffer)[0]):
        found.append(bytes(buffer[8:end]))
        del buffer[:end]
    return found


def wait(descriptors: Iterable[int], seconds: float | None = None) -> set[int]:
    """Those of `descriptors` that can be read from, once there are some or `seconds` are over.

    Unlike `select.select`, however many files are open.
    """
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        return {key.fd for key, _ in selector.select(None if seconds is None else max(0.0, seconds))}
