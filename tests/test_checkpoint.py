"""A file that a format wrote to a storage, with and without a format that knows the storage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from pytest_tensorizer import formats
from pytest_tensorizer.checkpoint import Checkpoint, WeightsFile
from pytest_tensorizer.formats.torch import TorchFormat
from pytest_tensorizer.identity import assert_identical
from pytest_tensorizer.storage import LocalStorage, S3Service, moto_service


@pytest.fixture(scope="module")
def service() -> Iterator[S3Service]:
    with moto_service() as service:
        yield service


class Noted(TorchFormat):
    """Writes down where it was asked to go."""

    def __init__(self) -> None:
        self.places: list[str] = []

    def save(self, tensors: Any, target: Any, **options: Any) -> None:
        self.places.append(str(target))
        super().save(tensors, target, **options)

    def load(self, source: Any, **options: Any) -> Any:
        self.places.append(str(source))
        return super().load(source, **options)


@pytest.mark.parametrize("name", ["tensorizer", "safetensors", "torch"])
@pytest.mark.parametrize("storage", ["local", "s3"])
def test_state_dicts_and_modules_come_back(name: str, storage: str, tmp_path: Path, service: S3Service) -> None:
    format = formats.resolve(name)
    tensors = {"a": torch.arange(5.0)}
    source, target = nn.Sequential(nn.Linear(3, 2)), nn.Sequential(nn.Linear(3, 2))
    with service.bucket() as bucket:
        place = bucket if storage == "s3" else LocalStorage(tmp_path)
        file = WeightsFile.write(tensors, format, place, f"deep/a{format.suffix}")
        assert file.uri.endswith(f"deep/a{format.suffix}")
        assert_identical(file.load(), tensors)
        assert format.name == "torch" or b"a" in file.read()
        WeightsFile.write(source, format, place, "m").load_module(target)
    assert_identical(dict(target.state_dict()), dict(source.state_dict()))


def test_a_format_without_s3_never_sees_a_uri(tmp_path: Path, service: S3Service) -> None:
    format = Noted()
    with service.bucket() as bucket:
        file = WeightsFile.write({"a": torch.ones(2)}, format, bucket, "a.pt")
        assert_identical(file.load(), {"a": torch.ones(2)})
        assert bucket.keys() == ["a.pt"]
    assert len(format.places) == 2
    for place in format.places:
        assert place.endswith("/a.pt")
        assert not place.startswith("s3://")
        assert not Path(place).exists(), "the temporary file is still there"


def test_a_failed_write_leaves_no_object(tmp_path: Path, service: S3Service) -> None:
    with service.bucket() as bucket:
        with pytest.raises(TypeError):
            WeightsFile.write({"a": torch.ones(2)}, TorchFormat(), bucket, "a.pt", no_such_option=1)
        assert bucket.keys() == []


def test_a_checkpoint_says_what_it_is(tmp_path: Path) -> None:
    file = WeightsFile(TorchFormat(), LocalStorage(tmp_path), "a.pt")
    assert str(Checkpoint(Path("/models/llama"), file)) == "llama as torch at local"
