"""The container that `torch.save` wrote before zip archives, and still writes when asked to.

Five pickles (a magic number, a version, facts of the machine, the object, the keys of the storages), and for each
storage its number of elements, in eight bytes, and the elements.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from pytest_tensorizer.strategies.structure.region import Reader, Region

_NUMBER = 0x1950A86A20F9469CFC6C
# With whatever protocol it is pickled, the magic number stands near the beginning.
_MAGIC = _NUMBER.to_bytes(10, "little")
_ITEM_SIZES = {
    **dict.fromkeys(["ComplexDouble"], 16),
    **dict.fromkeys(["Double", "Long", "ComplexFloat"], 8),
    **dict.fromkeys(["Float", "Int", "QInt32"], 4),
    **dict.fromkeys(["Half", "BFloat16", "Short"], 2),
    **dict.fromkeys(["Char", "Byte", "Bool", "QInt8", "QUInt8", "QUInt4x2", "QUInt2x4", "Untyped"], 1),
}


def recognised(data: bytes) -> bool:
    """Whether `data` begins with the magic number of the older container, in binary or in digits."""
    return _MAGIC in data[:32] or str(_NUMBER).encode() in data[:32]


class _StandIn:
    """Takes the place of every class and function that a pickle names: nothing of the pickle is ever run."""

    name = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> _StandIn:
        return self

    def append(self, value: Any) -> None:
        pass


class _Unpickler(pickle.Unpickler):
    """Looks at a pickle without running anything of it, and notes the storages that it refers to."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.storages: dict[str, int] = {}

    def find_class(self, module: str, name: str) -> Any:
        return type(name, (_StandIn,), {"name": name})

    def persistent_load(self, pid: Any) -> Any:
        if pid[0] == "storage":
            _, storage, key, *_ = pid
            self.storages[str(key)] = _ITEM_SIZES[storage.name.removesuffix("Storage")]
            return None
        # A module's class, with its source.
        return pid[1]


def regions(data: bytes) -> tuple[Region, ...]:
    """The regions of the older container. Raises ValueError with an offset where it is not well formed."""
    reader = Reader(data, "file of torch.save")
    sizes: dict[str, int] = {}
    value: Any = None
    for name in ("magic number", "protocol version", "system information", "object", "keys of the storages"):
        file = io.BytesIO(data)
        file.seek(reader.at)
        unpickler = _Unpickler(file)
        try:
            value = unpickler.load()
        except Exception as error:
            raise reader.error(f"{name} cannot be unpickled: {type(error).__name__}: {error}") from error
        sizes.update(unpickler.storages)
        reader.upto(file.tell(), f"pickle of the {name}", "magic" if name == "magic number" else "pickle")
    if not isinstance(value, list):
        raise reader.error(f"the keys of the storages are {type(value).__name__}, no list")
    for key in map(str, value):
        if key not in sizes:
            raise reader.error(f"the object has no storage {key!r}")
        count = reader.number(8, f"number of elements of storage {key!r}", "count")
        reader.take(count * sizes[key], f"data of storage {key!r}", "data")
    reader.upto(len(data), "bytes behind the last storage", "file")
    return tuple(reader.regions)
