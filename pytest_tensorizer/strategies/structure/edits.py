"""What can be done to the bytes of a file. Each edit is a value, and its repr is code that makes it again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# Where an offset lies, in words.
Where = Callable[[int], str]


class Edit:
    """One change. All offsets are in bytes, from the beginning of the file that the edit is applied to."""

    # Of two edits at one offset, the higher one is applied later: what takes bytes away comes last.
    order = 0

    @property
    def word(self) -> str:
        """ "cut", "flip", "write" and so on."""
        return type(self).__name__.lower()

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """The parts of the file that are touched, the place of the change first. Of an insertion, the byte behind."""
        raise NotImplementedError

    def apply(self, data: bytes) -> bytes:
        """The changed bytes. Raises ValueError if they have no such place."""
        raise NotImplementedError

    def tell(self, where: Where) -> str:
        """What is done, for a person."""
        raise NotImplementedError


def _checked(data: bytes, at: int) -> None:
    if not 0 <= at <= len(data):
        raise ValueError(f"there is no offset {at} in {len(data)} bytes")


@dataclass(frozen=True)
class Cut(Edit):
    """Keep the first `at` bytes, as when the disk was full or the connection broke."""

    at: int
    order = 3

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        return ((self.at, self.at + 1),)

    def apply(self, data: bytes) -> bytes:
        _checked(data, self.at)
        return data[: self.at]

    def tell(self, where: Where) -> str:
        return f"cut {where(self.at)}"


@dataclass(frozen=True)
class Flip(Edit):
    """Turn one bit over; bit 0 is worth 1."""

    at: int
    bit: int

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        return ((self.at, self.at + 1),)

    def apply(self, data: bytes) -> bytes:
        _checked(data, self.at + 1)
        return data[: self.at] + bytes([data[self.at] ^ 1 << self.bit]) + data[self.at + 1 :]

    def tell(self, where: Where) -> str:
        return f"bit {self.bit} flipped {where(self.at)}"


@dataclass(frozen=True)
class Write(Edit):
    """Put `data` over as many bytes from `at` on; the file does not grow by it."""

    at: int
    data: bytes

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        return ((self.at, self.at + len(self.data)),)

    def apply(self, data: bytes) -> bytes:
        _checked(data, self.at)
        return data[: self.at] + self.data[: len(data) - self.at] + data[self.at + len(self.data) :]

    def tell(self, where: Where) -> str:
        return f"{_shown(self.data)} written {where(self.at)}"


@dataclass(frozen=True)
class Zero(Edit):
    """Put zeros from `start` to `stop`, as of a block that never reached the disk."""

    start: int
    stop: int

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        return ((self.start, self.stop),)

    def apply(self, data: bytes) -> bytes:
        _checked(data, self.start)
        return data[: self.start] + bytes(len(data[self.start : self.stop])) + data[self.stop :]

    def tell(self, where: Where) -> str:
        return f"{_bytes(self)} zeroed {where(self.start)}"


@dataclass(frozen=True)
class Replace(Edit):
    """Put `data`, of whatever length, in the place of what stands from `start` to `stop`."""

    start: int
    stop: int
    data: bytes
    order = 1

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        return ((self.start, max(self.stop, self.start + 1)),)

    def apply(self, data: bytes) -> bytes:
        _checked(data, self.start)
        return data[: self.start] + self.data + data[self.stop :]

    def tell(self, where: Where) -> str:
        return f"{_bytes(self)} replaced by {_shown(self.data)} {where(self.start)}"


@dataclass(frozen=True)
class Delete(Edit):
    """Take out what stands from `start` to `stop`."""

    start: int
    stop: int
    order = 2

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        return ((self.start, self.stop),)

    def apply(self, data: bytes) -> bytes:
        _checked(data, self.start)
        return data[: self.start] + data[self.stop :]

    def tell(self, where: Where) -> str:
        return f"{_bytes(self)} taken out {where(self.start)}"


@dataclass(frozen=True)
class Insert(Edit):
    """Put `data` before offset `at`."""

    at: int
    data: bytes
    order = 1

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        return ((self.at, self.at + 1),)

    def apply(self, data: bytes) -> bytes:
        _checked(data, self.at)
        return data[: self.at] + self.data + data[self.at :]

    def tell(self, where: Where) -> str:
        return f"{_shown(self.data)} inserted {where(self.at)}"


@dataclass(frozen=True)
class Repeat(Edit):
    """Put a copy of what stands from `start` to `stop` before offset `at`."""

    start: int
    stop: int
    at: int
    order = 1

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        return ((self.at, self.at + 1), (self.start, self.stop))

    def apply(self, data: bytes) -> bytes:
        _checked(data, self.at)
        return data[: self.at] + data[self.start : self.stop] + data[self.at :]

    def tell(self, where: Where) -> str:
        return f"{_bytes(self)} {where(self.start)} repeated {where(self.at)}"


@dataclass(frozen=True)
class Swap(Edit):
    """Exchange what stands from `start` to `stop` with what stands from `start2` to `stop2`, which is further on."""

    start: int
    stop: int
    start2: int
    stop2: int

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        return ((self.start, self.stop), (self.start2, self.stop2))

    def apply(self, data: bytes) -> bytes:
        _checked(data, self.start)
        first, between, second = (
            data[self.start : self.stop],
            data[self.stop : self.start2],
            data[self.start2 : self.stop2],
        )
        return data[: self.start] + second + between + first + data[self.stop2 :]

    def tell(self, where: Where) -> str:
        return f"{_bytes(self)} {where(self.start)} exchanged with those {where(self.start2)}"


@dataclass(frozen=True)
class Append(Edit):
    """Put `data` behind the end."""

    data: bytes

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        return ()

    def apply(self, data: bytes) -> bytes:
        return data + self.data

    def tell(self, where: Where) -> str:
        return f"{_shown(self.data)} put behind the end"


def _bytes(part: Zero | Replace | Delete | Repeat | Swap) -> str:
    size = part.stop - part.start
    return f"{size} bytes" if size != 1 else "1 byte"


def _shown(data: bytes) -> str:
    return repr(data) if len(data) <= 16 else f"{len(data)} bytes {data[:8]!r}…"
