"""The device is chosen without an import of torch, let alone a call into a driver."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_tensorizer import devices


@pytest.mark.parametrize(
    ("wanted", "expected"), [("cpu", "cpu"), ("cuda", "cuda:0"), ("cuda:0", "cuda:0"), ("cuda:12", "cuda:12")]
)
def test_what_was_asked_for(wanted: str, expected: str) -> None:
    assert devices.choose(wanted) == expected


@pytest.mark.parametrize("wanted", ["", "gpu", "CPU", "cuda:", "cuda:a", "cuda:-1", "cpu:0", " cpu", "cuda:1\n", "mps"])
def test_what_is_no_device(wanted: str) -> None:
    with pytest.raises(ValueError, match="is no device: use auto, cpu, cuda or cuda:N"):
        devices.choose(wanted)


@pytest.mark.parametrize(
    ("card", "built", "expected"), [(True, True, "cuda:0"), (True, False, "cpu"), (False, True, "cpu")]
)
def test_auto(card: bool, built: bool, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_nvidia_cards", lambda: card)
    monkeypatch.setattr(devices, "torch_is_built_for_cuda", lambda: built)
    assert devices.choose("auto") == expected


@pytest.mark.parametrize(
    ("names", "visible", "expected"),
    [
        (["nvidia0", "nvidiactl"], None, True),
        (["nvidia12"], "0", True),
        (["nvidiactl", "nvidia-uvm"], None, False),
        ([], None, False),
        (["nvidia0"], "", False),
        (["nvidia0"], "-1", False),
        (["nvidia0"], "GPU-1234", True),
    ],
)
def test_cards(names: list[str], visible: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "Path", lambda path: SimpleNamespace(glob=lambda pattern: map(Path, names)))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert devices._nvidia_cards() is expected


@pytest.mark.parametrize(
    ("version", "content", "expected"),
    [
        ("2.13.0+cu128", "cuda: Optional[str] = '12.8'\n", True),
        ("2.13.0", "from typing import Optional\ncuda: str | None = '13.0'\nhip = None\n", True),
        ("2.13.0", "cuda = '13.0'\n", True),
        ("2.13.0", "cuda: Optional[str] = None\n", False),
        ("2.13.0+rocm6", "cuda: Optional[str] = None\nhip: Optional[str] = '6.0'\n", False),
        ("2.13.0+cpu", "cuda: Optional[str] = '13.0'\n", False),
        ("2.13.0", None, False),
        (None, None, False),
    ],
)
def test_what_torch_is_built_for(
    version: str | None, content: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def installed(name: str) -> Any:
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(devices.metadata, "version", installed)
    origin = str(tmp_path / "__init__.py")
    monkeypatch.setattr(devices, "find_spec", lambda name: SimpleNamespace(origin=origin))
    if content is not None:
        (tmp_path / "version.py").write_text(content)
    assert devices.torch_is_built_for_cuda() is expected


def test_torch_is_not_imported() -> None:
    code = "import sys; from pytest_tensorizer import devices; print(devices.choose('auto'), 'torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split()[1] == "False"
