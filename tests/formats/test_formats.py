"""The formats that come with the plugin, and how one is found by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pytest_tensorizer import formats, samples
from pytest_tensorizer.formats import Format, claims
from pytest_tensorizer.identity import assert_identical
from pytest_tensorizer.resolve import TargetError


class Minimal:
    """The least that is a format: no module methods, no version."""

    name = "minimal"
    suffix = ".min"
    capabilities: frozenset[str] = frozenset()

    def save(self, tensors: Any, target: Any, **options: Any) -> None: ...

    def load(self, source: Any, **options: Any) -> dict[str, Tensor]:
        return {}


INSTANCE = Minimal()
NO_FORMAT = object()


@pytest.fixture(params=list(formats.BUILTIN))
def format(request: pytest.FixtureRequest) -> Format:
    return formats.resolve(request.param)


def test_builtin_formats_are_formats(format: Format) -> None:
    assert isinstance(format, Format)
    assert formats.BUILTIN[format.name].endswith(type(format).__name__)
    known = {name for name in formats.CAPABILITIES if name != "dtype:NAME"}
    dtypes = {f"dtype:{name}" for name in samples.dtypes()}
    assert format.capabilities <= known | dtypes, "a capability that nothing explains"


def test_state_dict_module_and_bytes_come_back(format: Any, tmp_path: Path) -> None:
    tensors = {"a": torch.arange(6.0).reshape(2, 3), "b.c": torch.tensor(3)}
    path = tmp_path / f"x{format.suffix}"
    format.save(tensors, path)
    assert_identical(format.load(path), tensors)
    assert_identical(format.load(str(path)), tensors)
    assert_identical(format.from_bytes(format.to_bytes(tensors)), tensors)
    source, target = nn.Linear(3, 2), nn.Linear(3, 2)
    format.save_module(nn.Sequential(source), path)
    format.load_module(nn.Sequential(target), path)
    assert_identical(dict(target.state_dict()), dict(source.state_dict()))


def test_options_reach_the_libraries(tmp_path: Path) -> None:
    tensors = {"keep": torch.ones(3), "skip": torch.ones(3)}
    tensorizer, safetensors = formats.resolve("tensorizer"), formats.resolve("safetensors")
    tensorizer.save(tensors, tmp_path / "t", limit_cpu_concurrency=1)
    loaded = tensorizer.load(
        tmp_path / "t", filter_func=lambda name: name == "keep", dtype=torch.float64, num_readers=1
    )
    assert list(loaded) == ["keep"]
    assert loaded["keep"].dtype is torch.float64
    module = nn.Sequential(nn.Linear(2, 2))
    tensorizer.save_module(module, tmp_path / "m", remove_tensors=True)
    assert module[0].weight is None
    safetensors.save(tensors, tmp_path / "s", metadata={"made": "here"})
    assert set(safetensors.load(tmp_path / "s", device="cpu", backend="pread")) == {"keep", "skip"}
    with pytest.raises(TypeError, match="no_such_option"):
        safetensors.load(tmp_path / "s", no_such_option=1)


@pytest.mark.parametrize("target", ["Minimal", "INSTANCE"])
def test_resolve_takes_a_class_or_an_object(target: str) -> None:
    assert formats.resolve(f"{__name__}:{target}").name == "minimal"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nonsense", "use one of tensorizer, safetensors, torch"),
        ("no.such.module:Thing", "there is no module 'no'"),
        (f"{__name__}:Missing", "has no attribute 'Missing'"),
        (f"{__name__}:NO_FORMAT", "lacks name, suffix, capabilities, save, load"),
    ],
)
def test_resolve_says_what_is_wrong(name: str, words: str) -> None:
    with pytest.raises(TargetError, match=words):
        formats.resolve(name)


def test_default_dtypes_hold_unless_a_format_claims_its_own() -> None:
    minimal = formats.resolve(f"{__name__}:Minimal")
    assert claims(minimal, "dtype:bfloat16")
    assert not claims(minimal, "dtype:complex64")
    safetensors = formats.resolve("safetensors")
    assert claims(safetensors, "dtype:complex64")
    assert not claims(safetensors, "dtype:complex128")
    assert not claims(safetensors, "s3")
