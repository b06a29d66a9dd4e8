"""The two files in which `torch.save` writes an object, written record by record.

`torch.save` itself cannot write what other machines do: it tags every storage with the device that it lies on, and
knows only the byte order of this machine. What it leaves to chance, the keys of the legacy container, is fixed here, so
that equal objects make equal files.
"""

from __future__ import annotations

import ctypes
import io
import pickle
import zipfile
from typing import Any

import torch

_PROTOCOL = 2  # as torch.save has it
_MARK = b"PK\x01\x02"  # begins each entry of a zip archive's directory


class Reduced:
    """What pickles as a call of `function`: the way to save a tensor that torch would not make."""

    def __init__(self, function: Any, arguments: tuple[Any, ...]) -> None:
        self._call = function, arguments

    def __reduce__(self) -> Any:
        return self._call


class _Pickler(pickle.Pickler):
    """Pickles an object as `torch.save` does: without its storages, which are collected."""

    def __init__(self, file: io.BytesIO, location: str, *, legacy: bool) -> None:
        super().__init__(file, protocol=_PROTOCOL)
        self._location = location
        self._legacy = legacy
        self._keys: dict[int, str] = {}
        self.storages: list[tuple[Any, int]] = []  # each with the bytes of an element

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, torch.storage.TypedStorage | torch.UntypedStorage):
            return None
        if isinstance(obj, torch.UntypedStorage):
            storage, kind, width, count = obj, torch.UntypedStorage, 1, obj.nbytes()
        else:
            typed: Any = obj
            storage, width, count = typed._untyped_storage, typed.dtype.itemsize, typed._size()
            kind = getattr(torch, typed._pickle_storage_type())
        key = self._keys.get(storage._cdata)
        if key is None:
            # In the list the storage lives on, and its address is that of no other.
            key = self._keys[storage._cdata] = str(len(self.storages))
            self.storages.append((storage, width))
        saved = ("storage", kind, key, self._location, count)
        return (*saved, None) if self._legacy else saved


def _pickled(obj: object, location: str, *, legacy: bool) -> tuple[bytes, list[tuple[bytes, int]]]:
    file = io.BytesIO()
    pickler = _Pickler(file, location, legacy=legacy)
    pickler.dump(obj)
    return file.getvalue(), [(_memory(storage), width) for storage, width in pickler.storages]


def _memory(storage: torch.UntypedStorage) -> bytes:
    return ctypes.string_at(storage.data_ptr(), storage.nbytes()) if storage.nbytes() else b""


def legacy_file(obj: object, location: str = "cpu") -> bytes:
    """The container that torch wrote before its zip archives, and still reads: pickles, and then the storages."""
    pickled, storages = _pickled(obj, location, legacy=True)
    system = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    head = (torch.serialization.MAGIC_NUMBER, torch.serialization.PROTOCOL_VERSION, system)
    parts = [pickle.dumps(part, _PROTOCOL) for part in head]
    parts += [pickled, pickle.dumps([str(number) for number in range(len(storages))], _PROTOCOL)]
    for memory, width in storages:
        parts += [(len(memory) // width).to_bytes(8, "little"), memory]
    return b"".join(parts)


def zip_records(obj: object, location: str = "cpu", byteorder: str | None = "little") -> dict[str, bytes]:
    """The records of the zip archive, by name. None leaves out the byte order, as torch did before version 2.1."""
    pickled, storages = _pickled(obj, location, legacy=False)
    records = {"data.pkl": pickled}
    if byteorder is not None:
        records["byteorder"] = byteorder.encode()
    for number, (memory, width) in enumerate(storages):
        records[f"data/{number}"] = _swapped(memory, width) if byteorder == "big" else memory
    return records


def _swapped(memory: bytes, width: int) -> bytes:
    """The bytes of each element in the other order. (No complex ones get here: these have two parts.)"""
    swapped = bytearray(memory)
    for place in range(width):
        swapped[place::width] = memory[width - 1 - place :: width]
    return bytes(swapped)


def zip_file(records: dict[str, bytes], *, deflated: bool = False) -> bytes:
    """The archive, by torch's own writer where it can: it aligns the records, and adds a version and an id.

    It does not compress records, though torch reads such, and does not leave out the byte order.
    """
    file = io.BytesIO()
    if deflated or "byteorder" not in records:
        with zipfile.ZipFile(file, "w") as archive:
            for name, data in {**records, "version": b"3\n"}.items():
                # A ZipInfo of its own: the date of today has no part in it.
                info = zipfile.ZipInfo(f"archive/{name}")
                archive.writestr(info, data, zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED)
        return file.getvalue()
    writer = torch._C.PyTorchFileWriter(file)
    for name, data in records.items():
        writer.write_record(name, data, len(data))
    writer.write_end_of_file()
    return file.getvalue()


def with_wrong_checksum(archive: bytes) -> bytes:
    """The archive with another CRC of its pickle in the directory, where readers look it up."""
    name = b"archive/data.pkl"
    start = archive.rindex(name) - 46
    assert archive.startswith(_MARK, start), "the name stands last in the directory, behind 46 bytes"
    changed = bytearray(archive)
    changed[start + 16] ^= 1
    return bytes(changed)
