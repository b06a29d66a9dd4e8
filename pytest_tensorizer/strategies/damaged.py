"""Damaged files: what a broken disk, a broken connection or a hostile hand makes of a good checkpoint."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import Any

from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from pytest_tensorizer.strategies.code import Code
from pytest_tensorizer.strategies.structure import damages
from pytest_tensorizer.strategies.structure.edits import (
    Append,
    Cut,
    Delete,
    Edit,
    Flip,
    Insert,
    Repeat,
    Replace,
    Swap,
    Write,
    Zero,
)
from pytest_tensorizer.strategies.structure.source import Source

__all__ = [
    "Append",
    "Cut",
    "Damaged",
    "Delete",
    "Flip",
    "Insert",
    "Repeat",
    "Replace",
    "Swap",
    "Write",
    "Zero",
    "damaged",
]


_RUN = re.compile(rb"(.)\1{63,}", re.DOTALL)


class Damaged(Code):
    """A file with some edits made, one after the other. The repr is code that makes it again.

    Args:
        file: the good file, as bytes or as a path, which is read at once.
        edits: at least one. `damaged` lists those further on in the file first, so that all offsets are offsets of the
            good file; the words in `description` are right for such lists.

    Attributes:
        data: the bytes of the damaged file.

    Raises ValueError if an edit is outside of the file.
    """

    def __init__(self, file: bytes | bytearray | str | os.PathLike[str], edits: Iterable[Edit]) -> None:
        source = Source.of(file)
        found = tuple(edits)
        data = source.data
        for edit in found:
            data = edit.apply(data)
        self._set(source.file, found, data, source)

    def _set(self, file: bytes | str, edits: tuple[Edit, ...], data: bytes, source: Source) -> None:
        self.file = file
        self.edits = edits
        self.data = data
        self._source = source

    @classmethod
    def _of(cls, source: Source, edits: tuple[Edit, ...], data: bytes) -> Damaged:
        made = cls.__new__(cls)
        made._set(source.file, edits, data, source)
        return made

    @cached_property
    def traits(self) -> frozenset[str]:
        """What was done ("cut", "flip", "write", …) and to what kinds of regions ("data", "size", "dtype", …)."""
        words = {edit.word for edit in self.edits}
        for edit in self.edits:
            for start, stop in edit.spans:
                words.update(region.kind for region in self._source.between(start, stop))
        return frozenset(words)

    @cached_property
    def description(self) -> str:
        """One line that names the edits and the places."""
        return "; ".join(self._told(edit) for edit in self.edits)

    def _told(self, edit: Edit) -> str:
        """A field that got another value is told by its name and values; all else by what was done, and where."""
        if isinstance(edit, (Write, Replace)):
            start, stop = edit.spans[0] if isinstance(edit, Write) else (edit.start, edit.stop)
            region = self._source.at(start)
            if region and (region.start, region.stop) == (start, stop) and stop - start <= 64:
                old = self._source.data[start:stop]
                if region.integer in ("little", "big"):
                    moved = region._replace(start=0, stop=len(edit.data))
                    return f"{region.name} set from {region.value(self._source.data)} to {moved.value(edit.data)}"
                return f"{region.name} set from {_text(old)} to {_text(edit.data)}"
        return edit.tell(self._source.where)

    def __repr__(self) -> str:
        file = _code(self.file) if isinstance(self.file, bytes) else repr(self.file)
        return f"Damaged({file}, [{', '.join(map(repr, self.edits))}])"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Damaged):
            return NotImplemented
        return (self.file, self.edits, self.data) == (other.file, other.edits, other.data)

    def __hash__(self) -> int:
        return hash((self.file, self.edits))

    def __getstate__(self) -> dict[str, Any]:
        # The path may lead nowhere where this is unpickled: the words are found before.
        state = {"traits": self.traits, "description": self.description}
        return {"file": self.file, "edits": self.edits, "data": self.data, **state}


@lru_cache(maxsize=4)
def _code(data: bytes) -> str:
    """As `repr`, but short where a byte is repeated: one of the formats begins with 256 KiB of zeros."""
    parts, done = [], 0
    for run in _RUN.finditer(data):
        if run.start() > done:
            parts.append(repr(data[done : run.start()]))
        length = run.end() - run.start()
        parts.append(f"bytes({length})" if run[1] == b"\0" else f"{run[1]!r} * {length}")
        done = run.end()
    if done < len(data) or not parts:
        parts.append(repr(data[done:]))
    return " + ".join(parts)


def _text(data: bytes) -> str:
    try:
        return repr(data.decode("ascii")) if len(data) <= 64 else f"{len(data)} bytes"
    except UnicodeDecodeError:
        return "0x" + data.hex()


def damaged(file: bytes | bytearray | str | os.PathLike[str], *, max_edits: int = 2) -> st.SearchStrategy[Damaged]:
    """A strategy for damaged variants of a good file; none is equal to it.

    The file is cut off at and around each boundary of its structure and within parts, fields of its headers get values
    that are wrong, bits flip, blocks are zeroed, taken out, repeated, exchanged, or put in. Of safetensors, headers
    change that remain well-formed JSON of the right length; of zip archives, contents whose CRC32 is right. Each field
    of a header is damaged about as often as a whole tensor is.

    What is found shrinks to one edit; to a cut rather than a field, a field rather than a bit, a bit rather than the
    others; and towards the beginning of the file.

    Args:
        file: the content as bytes, or a path. It is read and parsed once, now. `.tensors`, safetensors and what
            `torch.save` writes are recognised by their content; of any other file, and of one of these that is not
            well formed, nothing is known but its bytes. Each draw copies the file: make it small.
        max_edits: at most so many places are damaged, 1 or more. A damage with which a header or a checksum is kept
            consistent is one of these, though several edits.

    Raises hypothesis.errors.InvalidArgument if the file cannot be read or is empty; or if `max_edits` is no int of at
    least 1.
    """
    if isinstance(max_edits, bool) or not isinstance(max_edits, int) or max_edits < 1:
        raise InvalidArgument(f"max_edits={max_edits!r} is no int of at least 1")
    shown = f"file={file!r}" if not isinstance(file, (bytes, bytearray)) else f"file=<{len(file)} bytes>"
    try:
        source = Source.of(file)
    except TypeError as error:
        raise InvalidArgument(f"{shown} is no file: give its bytes or its path") from error
    except OSError as error:
        raise InvalidArgument(f"{shown} cannot be read: {error}") from error
    if not source.data:
        raise InvalidArgument(f"{shown} is empty: there is nothing to damage")

    def make(choices: tuple[damages.Choice, ...]) -> Damaged:
        edits, data = damages.make(source, choices)
        return Damaged._of(source, edits, data)

    one = st.tuples(*(st.integers(0, highest) for highest in damages.highest(source)))
    # Tuples of each length rather than lists: they cost Hypothesis less, and shrink as well.
    return st.one_of(*(st.tuples(*[one] * count) for count in range(1, max_edits + 1))).map(make)
