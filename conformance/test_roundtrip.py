"""What a format is given must come back: every dtype, shape and memory layout, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_tensorizer import samples
from pytest_tensorizer.formats import Format, claims
from pytest_tensorizer.identity import assert_identical
from pytest_tensorizer.suite.check import check
from pytest_tensorizer.suite.claims import may_refuse, need

CASES = samples.cases()
IN_ORDER = [(dtype, shape) for dtype, shape, layout in CASES if layout == "contiguous"]

READING: dict[str, tuple[str, dict[str, Any]]] = {
    "lazy": ("lazy", {"lazy_load": True}),
    "one-reader": ("readers", {"num_readers": 1}),
    "four-readers": ("readers", {"num_readers": 4}),
    "verified": ("verify", {"verify_hash": True}),
    "mapped": ("backend", {"backend": "mmap"}),
    "pread": ("backend", {"backend": "pread"}),
}
"""Case -> the capability and the options of loading."""


def _path(directory: Path, format: Format) -> Path:
    return directory / f"weights{format.suffix}"


def _several(format: Format) -> dict[str, torch.Tensor]:
    """A state dict of all dtypes that the format claims, and of whatever else a format could confuse.

    Names that differ in case alone, tensors alike in all but their values, square ones, and ones beyond 64 KiB.
    """
    tensors = {
        f"layers.{dtype}.weight": samples.make(dtype, "2d", "contiguous")
        for dtype in samples.dtypes()
        if claims(format, f"dtype:{dtype}")
    }
    for number in range(20):
        generator = torch.Generator().manual_seed(number)
        tensors[f"blocks.{number}.weight"] = torch.randn(number + 1, 257, generator=generator)
    generator = torch.Generator().manual_seed(99)
    for name in ("Blocks.0.Weight", "square.a", "square.b"):
        tensors[name] = torch.randn(48, 48, generator=generator)
    tensors["large"] = torch.randn(300, 257, generator=generator)
    return tensors


@check("roundtrip/bits", subject="format")
@pytest.mark.parametrize(("dtype", "shape", "layout"), CASES, ids=map("-".join, CASES))
def test_bits(tensorizer_format: Format, tmp_path: Path, dtype: str, shape: str, layout: str) -> None:
    """A tensor that is saved comes back with its dtype, its shape and every bit, however it lies in memory.

    A format may refuse a dtype or a layout that it does not claim. What it accepts must be right.
    """
    tensor = samples.make(dtype, shape, layout)
    path = _path(tmp_path, tensorizer_format)
    claimed = [f"dtype:{dtype}"] if tensor.is_contiguous() else [f"dtype:{dtype}", "noncontiguous"]
    with may_refuse(tensorizer_format, *claimed):
        tensorizer_format.save({"weight": tensor}, path)
        loaded = tensorizer_format.load(path)
    assert_identical(loaded, {"weight": tensor})


@check("roundtrip/bytes", subject="format")
@pytest.mark.parametrize(("dtype", "shape"), IN_ORDER, ids=map("-".join, IN_ORDER))
def test_bytes(tensorizer_format: Any, dtype: str, shape: str) -> None:
    """What a format writes to bytes it reads from bytes, as it does from a file."""
    need(tensorizer_format, "bytes")
    tensor = samples.make(dtype, shape, "contiguous")
    with may_refuse(tensorizer_format, f"dtype:{dtype}"):
        data = tensorizer_format.to_bytes({"weight": tensor})
        loaded = tensorizer_format.from_bytes(bytes(data))
    assert_identical(loaded, {"weight": tensor})


@check("roundtrip/lazy-views", subject="format")
@pytest.mark.parametrize("view", ["conj", "neg"])
def test_lazy_views(tensorizer_format: Format, tmp_path: Path, view: str) -> None:
    """A conjugate or negative view, whose bits torch flips only on reading, is saved as the values that it shows.

    Without a claim of `lazy-views` a format may refuse it.
    """
    if view == "conj":
        tensor = torch.complex(torch.arange(1.0, 7.0), torch.arange(11.0, 17.0)).conj()
        assert tensor.is_conj()
    else:
        # The imaginary part of a conjugate is a negative view; of a single element, it is contiguous.
        tensor = torch.complex(torch.tensor([1.0]), torch.tensor([11.0])).conj().imag
        assert tensor.is_neg()
    assert tensor.is_contiguous()
    path = _path(tmp_path, tensorizer_format)
    with may_refuse(tensorizer_format, "dtype:complex64", "lazy-views"):
        tensorizer_format.save({"weight": tensor}, path)
        loaded = tensorizer_format.load(path)
    assert_identical(loaded, {"weight": tensor})


@check("roundtrip/collection", subject="format")
def test_collection(tensorizer_format: Format, tmp_path: Path) -> None:
    """Of many tensors none is lost, added or exchanged."""
    tensors = _several(tensorizer_format)
    path = _path(tmp_path, tensorizer_format)
    tensorizer_format.save(tensors, path)
    assert_identical(tensorizer_format.load(path), tensors)


@check("roundtrip/reading", subject="format")
@pytest.mark.parametrize("way", list(READING))
def test_reading(tensorizer_format: Format, tmp_path: Path, way: str) -> None:
    """Every way of reading a file gives the same tensors."""
    capability, options = READING[way]
    need(tensorizer_format, capability)
    tensors = _several(tensorizer_format)
    path = _path(tmp_path, tensorizer_format)
    tensorizer_format.save(tensors, path)
    assert_identical(tensorizer_format.load(path, **options), tensors)


@check("roundtrip/replaced", subject="format")
def test_replaced(tensorizer_format: Format, tmp_path: Path) -> None:
    """Saving to a file that exists leaves nothing of what was there, on the disk or in somebody's cache."""
    path = _path(tmp_path, tensorizer_format)
    tensorizer_format.save(_several(tensorizer_format), path)
    assert_identical(tensorizer_format.load(path), _several(tensorizer_format))
    tensors = {"only": torch.arange(5, dtype=torch.float32)}
    tensorizer_format.save(tensors, path)
    assert_identical(tensorizer_format.load(path), tensors)


@check("roundtrip/caller-untouched", subject="format")
def test_caller_untouched(tensorizer_format: Format, tmp_path: Path) -> None:
    """Saving changes neither the caller's mapping nor a bit of the caller's tensors."""
    tensors = _several(tensorizer_format)
    given = dict(tensors)
    tensorizer_format.save(given, _path(tmp_path, tensorizer_format))
    assert list(given) == list(tensors)
    assert all(given[name] is tensor for name, tensor in tensors.items())
    assert_identical(given, _several(tensorizer_format))


@check("roundtrip/encrypted", subject="format")
@pytest.mark.parametrize("key", ["right", "wrong", "none"])
def test_encrypted(tensorizer_format: Format, tmp_path: Path, key: str) -> None:
    """An encrypted file opens with its key and with nothing else, and shows nothing of what it holds."""
    need(tensorizer_format, "encryption")
    from tensorizer import DecryptionParams, EncryptionParams

    tensors = {"weight": torch.full((64, 64), 1.0)}
    path = _path(tmp_path, tensorizer_format)
    right, other = EncryptionParams.random(), EncryptionParams.random()
    tensorizer_format.save(tensors, path, encryption=right)
    assert tensors["weight"][0].numpy().tobytes() not in path.read_bytes()
    if key == "right":
        loaded = tensorizer_format.load(path, encryption=DecryptionParams.from_key(right.key))
        assert_identical(loaded, tensors)
        return
    options = {} if key == "none" else {"encryption": DecryptionParams.from_key(other.key)}
    with pytest.raises(Exception, match=r"(?i)crypt"):
        tensorizer_format.load(path, **options)
