"""What the parsers say about good files is true: it is held against the files' own libraries, and the tensors."""

from __future__ import annotations

import ast
import io
import json
import struct
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from tensorizer import EncryptionParams, TensorDeserializer
from torch import Tensor

from pytest_tensorizer import samples
from pytest_tensorizer.strategies import structure
from pytest_tensorizer.strategies.structure import Region, parse, regions
from tests.strategies.structure import files

FILES = files.files()


def content(data: bytes, name: str) -> bytes:
    """The bytes of the one region with this name."""
    (region,) = [region for region in regions(data) if region.name == name]
    return data[region.start : region.stop]


def number(data: bytes, name: str) -> int:
    (region,) = [region for region in regions(data) if region.name == name]
    return region.value(data)


def raw(tensor: Tensor) -> bytes:
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist()) if tensor.numel() else b""


@pytest.mark.parametrize("name", FILES)
def test_regions_cover_the_file(name: str) -> None:
    data = FILES[name]
    parts = regions(data)
    assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])]
    assert parts[-1].stop == len(data)
    assert all(part.start < part.stop for part in parts)
    assert all(part.name and part.kind == part.kind.lower() for part in parts)
    if name != "text":
        assert "file" not in {part.kind for part in parts}, "bytes that nobody accounts for"
        assert not [part.name for part in parts if "unknown" in part.name or part.name.startswith("gap")]


@pytest.mark.parametrize("name", FILES)
def test_integers_are_written_as_they_are_read(name: str) -> None:
    data = FILES[name]
    for part in regions(data):
        text = data[part.start : part.stop]
        if part.integer == "decimal":
            assert b"%d" % part.value(data) == text
        elif part.integer:
            assert part.value(data).to_bytes(part.stop - part.start, part.integer) == text


@pytest.mark.parametrize("data", [b"", b"x", b"|TZR", b"PK\3", bytes(8), bytes(100), b"\x80\x02K\x01."])
def test_anything_else_is_one_region(data: bytes) -> None:
    assert regions(data) == ((Region(0, len(data), "the file", "file"),) if data else ())


def test_tensorizer() -> None:
    data, state = FILES["tensorizer"], files.tensors()
    with TensorDeserializer(io.BytesIO(data), lazy_load=True) as deserializer:
        entries = {str(name): entry for name, entry in deserializer._metadata.items()}
    assert number(data, "number of tensors") == len(entries) == len(state)
    assert number(data, "version") == struct.unpack_from("<I", data, 5)[0]
    for name, entry in entries.items():
        index, header = f"of tensor {name!r} in the index", f"in the header of tensor {name!r}"
        assert number(data, f"header offset {index}") == entry.offset
        assert number(data, f"data offset {index}") == entry.data_offset
        assert number(data, f"data length {index}") == number(data, f"data length {header}") == entry.data_length
        assert content(data, f"dtype {index}") == content(data, f"dtype {header}") == entry.dtype.encode()
        assert [number(data, f"dimension {n} {header}") for n in range(len(entry.shape))] == list(entry.shape)
        assert [number(data, f"dimension {n} {index}") for n in range(len(entry.shape))] == list(entry.shape)
        if state[name].numel():
            assert content(data, f"data of tensor {name!r}") == raw(state[name])


def test_tensorizer_reads_a_field_where_it_is_said_to_be() -> None:
    data = FILES["tensorizer"]
    (field,) = [r for r in regions(data) if r.name == "data length of tensor 'weight' in the index"]
    # The index alone is read, nothing is loaded.
    changed = data[: field.start] + (23).to_bytes(8, "little") + data[field.stop :]
    with TensorDeserializer(io.BytesIO(changed), lazy_load=True) as deserializer:
        lengths = {str(name): entry.data_length for name, entry in deserializer._metadata.items()}
    assert lengths["weight"] == 23
    assert lengths["scalar"] == 8


@pytest.mark.parametrize("kind", ["key", "password"])
def test_tensorizer_encrypted(kind: str) -> None:
    try:
        encryption = EncryptionParams.random() if kind == "key" else EncryptionParams.from_string("secret")
    except RuntimeError as error:
        pytest.skip(f"encryption needs libsodium: {error}")
    state = {"weight": torch.arange(6.0), "bias": torch.ones(3)}
    data = files.tensorizer(state, encryption=encryption)
    parts = regions(data)
    assert (parts[0].start, parts[-1].stop) == (0, len(data))
    names = [part.name for part in parts if part.kind == "crypt"]
    assert "nonce of the encryption in the header of tensor 'weight'" in names
    assert ("salt of the encryption in the header of tensor 'bias'" in names) == (kind == "password")
    assert not [name for name in names if "rest of" in name], "a chunk that was not understood"
    assert len(content(data, "data of tensor 'weight'")) == 24


def test_safetensors() -> None:
    data, state = FILES["safetensors"], files.tensors()
    size = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8 : 8 + size])
    assert number(data, "length of the JSON header") == size
    for name, tensor in state.items():
        of = f"of tensor {name!r}"
        assert content(data, f"dtype {of}") == header[name]["dtype"].encode()
        assert [number(data, f"dimension {n} {of}") for n in range(tensor.dim())] == header[name]["shape"]
        assert [number(data, f"data_offsets {n} {of}") for n in range(2)] == header[name]["data_offsets"]
        assert json.loads(b'"%b"' % content(data, f"key {of}")) == name
        if tensor.numel():
            assert content(data, f"data {of}") == raw(tensor)
    assert content(data, "metadata 'format'") == b"pt"


def test_zip() -> None:
    data, state = FILES["zip"], files.tensors()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            directory, descriptor = f"of {info.filename!r} in the directory", f"descriptor of {info.filename!r}"
            assert number(data, f"CRC32 {directory}") == info.CRC
            assert number(data, f"offset {directory}") == info.header_offset
            assert number(data, f"size {directory}") == info.file_size
            if info.file_size:
                assert content(data, f"content of {info.filename!r}") == archive.read(info)
                assert number(data, f"CRC32 in the {descriptor}") == info.CRC
                assert number(data, f"size in the {descriptor}") == info.file_size
    contents = [data[r.start : r.stop] for r in regions(data) if r.kind == "data"]
    assert sorted(contents) == sorted(raw(tensor) for tensor in state.values() if tensor.numel())
    assert [r.name for r in regions(data) if r.kind == "pickle"] == ["content of 'archive/data.pkl'"]


@pytest.mark.parametrize("name", ["legacy", "legacy-protocol-4"])
def test_legacy(name: str) -> None:
    data, state = FILES[name], files.tensors()
    parts = regions(data)
    assert [part.kind for part in parts[:5]] == ["magic", "pickle", "pickle", "pickle", "pickle"]
    assert sorted(data[r.start : r.stop] for r in parts if r.kind == "data") == sorted(
        raw(tensor) for tensor in state.values() if tensor.numel()
    )
    assert sorted(r.value(data) for r in parts if r.kind == "count") == sorted(t.numel() for t in state.values())


def test_legacy_storages_of_every_dtype() -> None:
    read = set()
    for name, dtype in samples.dtypes().items():
        try:
            data = files.torch_legacy(samples.make(name, "1d", "contiguous"))
        except (RuntimeError, KeyError, AttributeError, TypeError, NotImplementedError):
            continue  # torch does not save it in this container
        (part,) = [part for part in regions(data) if part.kind == "data"]
        assert part.stop == len(data), dtype
        read.add(name)
    assert {"float32", "bfloat16", "complex128", "bool", "int16", "qint32", "float8_e5m2", "uint16"} <= read


@pytest.mark.parametrize("name", ["tensorizer", "safetensors", "zip", "legacy"])
def test_a_file_cut_anywhere_is_an_error_that_names_the_place(name: str) -> None:
    data = FILES[name]
    parts = regions(data)
    for at in sorted({place for part in parts for place in (part.start, part.start + 1, part.stop - 1)})[:-1]:
        error: str | None = None
        kept: tuple[Region, ...] = ()
        try:
            kept = regions(data[:at])
        except ValueError as caught:
            error = str(caught)
        if error is None:
            # Too little is left to tell what it was, or but for the end mark all is there.
            assert {part.kind for part in kept} <= {"file"} or at == parts[-1].start
        else:
            assert "at offset " in error


@pytest.mark.parametrize("name", ["tensorizer", "safetensors", "zip"])
def test_a_wrong_field_is_an_error_or_read_as_it_is(name: str) -> None:
    data = files.small(name)
    for part in regions(data):
        if part.kind == "data" or part.name.startswith("unused"):
            continue
        for text in (bytes(part.stop - part.start), b"\xff" * (part.stop - part.start)):
            changed = data[: part.start] + text + data[part.stop :]
            try:
                read = regions(changed)
            except ValueError:
                continue
            assert [r.start for r in read] == [0, *(r.stop for r in read[:-1])]
            assert read[-1].stop == len(changed)


def test_rewrites_of_safetensors_keep_the_json_well_formed() -> None:
    data = files.small("safetensors")
    size = struct.unpack_from("<Q", data)[0]
    found = parse(data)
    assert len(found.rewrites) == 3
    for listed in found.rewrites:
        for rewrite in listed():
            header = data
            for start, stop, new in sorted(rewrite.parts, reverse=True):
                header = header[:start] + new + header[stop:]
            assert header != data
            json.loads(header[8 : 8 + size + len(header) - len(data)])
            assert rewrite.length == found.regions[0]


def test_rewrites_of_zip_archives_keep_the_checksums_right() -> None:
    data = files.small("zip")
    changed = 0
    for listed in parse(data).rewrites:
        for rewrite in listed():
            archive = data
            for start, stop, new in rewrite.parts:
                archive = archive[:start] + new + archive[stop:]
            assert len(archive) == len(data)
            with zipfile.ZipFile(io.BytesIO(archive)) as opened:
                assert opened.testzip() is None
            changed += 1
    assert changed > 10


def test_the_parsers_import_the_standard_library_alone() -> None:
    package = Path(structure.__file__).parent
    for file in package.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name.split(".")[0] in sys.stdlib_module_names or name.startswith(structure.__name__), file
