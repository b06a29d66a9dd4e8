"""The same object on the local disk and in S3."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from pytest_tensorizer.checkpoint import WeightsFile
from pytest_tensorizer.formats import Format, claims
from pytest_tensorizer.identity import assert_identical
from pytest_tensorizer.storage import S3Bucket, Storage
from pytest_tensorizer.suite.check import check
from pytest_tensorizer.suite.claims import need

STORAGES = ["local", "s3"]


def _tensors() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return {f"layers.{n}.weight": torch.randn(64 * n + 1, 33, generator=generator) for n in range(6)}


def _need_s3(format: Format, storage: str) -> None:
    """A format that claims `s3` needs what it needs; any other one is handed a downloaded file."""
    if storage == "s3" and claims(format, "s3"):
        need(format, "s3")


@check("storage/write", subject="format")
@pytest.mark.parametrize("storage", STORAGES)
def test_write(
    tensorizer_format: Format, tensorizer_storage: Callable[[str], Storage], tmp_path: Path, storage: str
) -> None:
    """What a format writes to a storage lies there whole: the bytes, fetched by other means, are the tensors."""
    _need_s3(tensorizer_format, storage)
    file = WeightsFile.write(_tensors(), tensorizer_format, tensorizer_storage(storage), f"a{tensorizer_format.suffix}")
    copy = tmp_path / f"fetched{tensorizer_format.suffix}"
    copy.write_bytes(file.read())
    assert_identical(tensorizer_format.load(copy), _tensors())


@check("storage/read", subject="format")
@pytest.mark.parametrize("storage", STORAGES)
def test_read(
    tensorizer_format: Format, tensorizer_storage: Callable[[str], Storage], tmp_path: Path, storage: str
) -> None:
    """Bytes that other means have put into a storage are read back as the tensors that they are."""
    _need_s3(tensorizer_format, storage)
    written = tmp_path / f"written{tensorizer_format.suffix}"
    tensorizer_format.save(_tensors(), written)
    place = tensorizer_storage(storage)
    place.put(f"a{tensorizer_format.suffix}", written)
    file = WeightsFile(tensorizer_format, place, f"a{tensorizer_format.suffix}")
    assert_identical(file.load(), _tensors())
    assert file.read() == written.read_bytes(), "reading changed the object"


@check("storage/missing", subject="format")
@pytest.mark.parametrize("storage", STORAGES)
def test_missing(tensorizer_format: Format, tensorizer_storage: Callable[[str], Storage], storage: str) -> None:
    """Loading an object that is not there is an error which says so."""
    if storage == "s3":
        need(tensorizer_format, "s3")
    absent = WeightsFile(tensorizer_format, tensorizer_storage(storage), f"absent{tensorizer_format.suffix}")
    with pytest.raises(Exception, match=r"(?i)404|no such|not found|does not exist"):
        absent.load()


@check("storage/missing-named", subject="format", level="should")
@pytest.mark.parametrize("storage", STORAGES)
def test_missing_named(tensorizer_format: Format, tensorizer_storage: Callable[[str], Storage], storage: str) -> None:
    """The error names the object that is not there."""
    if storage == "s3":
        need(tensorizer_format, "s3")
    absent = WeightsFile(tensorizer_format, tensorizer_storage(storage), f"absent{tensorizer_format.suffix}")
    with pytest.raises(Exception) as raised:
        absent.load()
    assert "absent" in str(raised.value), f"the error does not name the object: {raised.value}"


@check("storage/wrong-credentials", subject="format")
def test_wrong_credentials(tensorizer_format: Format, tensorizer_bucket: S3Bucket, tmp_path: Path) -> None:
    """Reading with credentials that the service does not know is an error which says so, and reads nothing."""
    need(tensorizer_format, "s3")
    written = tmp_path / f"written{tensorizer_format.suffix}"
    tensorizer_format.save(_tensors(), written)
    tensorizer_bucket.put("a", written)
    stranger = S3Bucket(replace(tensorizer_bucket.service, access_key="UNKNOWN"), tensorizer_bucket.bucket)
    with pytest.raises(Exception, match=r"(?i)403|forbidden|denied|access ?key|credential"):
        WeightsFile(tensorizer_format, stranger, "a").load()
