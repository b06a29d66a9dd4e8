"""Payloads say what they are asked to say, and torch saves as before afterwards."""

from __future__ import annotations

import base64
import io
import pickletools
import sys
import threading
import zipfile
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_tensorizer.prompt_embeds import EmbedsSpec, embeds, encode, foreign_location, to_layout

SPEC = EmbedsSpec(6, torch.float32)
CONTAINERS = pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])


def strings(raw: bytes) -> list[str]:
    """Every string that the pickle of a `torch.save` archive pushes, read without unpickling anything."""
    found: list[str] = []
    if zipfile.is_zipfile(io.BytesIO(raw)):
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            pickles, wanted = io.BytesIO(archive.read("archive/data.pkl")), 1
    else:
        pickles, wanted = io.BytesIO(raw), 4  # magic number, version, system, and then the object
    for _ in range(wanted):
        found += [argument for _, argument, _ in pickletools.genops(pickles) if isinstance(argument, str)]
    return found


def loaded(payload: bytes, map_location: Any = None) -> Tensor:
    raw = base64.b64decode(payload)
    tensor = torch.load(io.BytesIO(raw), map_location=map_location, weights_only=True)
    assert isinstance(tensor, Tensor)
    return tensor


def lacks_device(location: str) -> bool:
    if location == "mps":
        return sys.platform != "darwin"
    return location.startswith("cuda") and torch.version.cuda is None and torch.version.hip is None


@CONTAINERS
def test_without_a_location_the_true_tag_is_written(legacy: bool) -> None:
    payload = encode(embeds(SPEC), legacy=legacy)
    assert "cpu" in strings(base64.b64decode(payload))
    assert torch.equal(loaded(payload), embeds(SPEC))


@CONTAINERS
def test_the_container_is_the_one_asked_for(legacy: bool) -> None:
    raw = base64.b64decode(encode(embeds(SPEC), legacy=legacy))
    assert raw.startswith(b"PK") is not legacy


@CONTAINERS
@pytest.mark.parametrize("location", ["mps", "cuda:3", "xpu", "hpu:0"])
@pytest.mark.parametrize("layout", ["dense", "coo", "bsr"])
def test_a_foreign_tag_replaces_every_true_one(location: str, layout: str, legacy: bool) -> None:
    payload = encode(to_layout(embeds(SPEC), layout), location=location, legacy=legacy)
    assert location in strings(base64.b64decode(payload))
    assert "cpu" not in strings(base64.b64decode(payload))
    seen: list[str] = []

    def note(storage: object, tag: str) -> object:
        seen.append(tag)
        return storage

    assert torch.equal(loaded(payload, note).to_dense(), embeds(SPEC))
    assert seen == [location] * {"dense": 1, "coo": 2, "bsr": 3}[layout]


@CONTAINERS
@pytest.mark.parametrize("location", ["mps", "cuda:3"])
def test_a_foreign_tag_fails_without_map_location(location: str, legacy: bool) -> None:
    if not lacks_device(location):
        pytest.skip(f"this torch may have a device that restores {location!r}")
    payload = encode(embeds(SPEC), location=location, legacy=legacy)
    with pytest.raises(RuntimeError, match=r"map_location|not recognized: mps"):
        loaded(payload)


def test_any_object_can_be_encoded() -> None:
    raw = base64.b64decode(encode({"a": [1, None]}))
    assert torch.load(io.BytesIO(raw), weights_only=True) == {"a": [1, None]}


@pytest.mark.parametrize("obj", [None, torch.empty(2, 6, device="meta")], ids=["none", "meta"])
def test_a_location_that_nothing_carries_is_an_error(obj: object) -> None:
    with pytest.raises(ValueError, match="location='mps' found no storage"):
        encode(obj, location="mps")


@pytest.mark.parametrize(("location", "kind"), [("", ValueError), (3, TypeError)])
def test_a_location_that_is_no_tag(location: object, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="device tag"):
        encode(embeds(SPEC), location=location)  # type: ignore[arg-type]


def test_torch_is_as_before_after_success_and_failure() -> None:
    original = torch.serialization.location_tag
    encode(embeds(SPEC), location="mps")
    assert torch.serialization.location_tag is original
    with pytest.raises((AttributeError, TypeError)):
        encode([embeds(SPEC), lambda: None], location="mps")
    assert torch.serialization.location_tag is original


def test_other_threads_keep_their_true_tags() -> None:
    buffer = io.BytesIO()
    with foreign_location("mps") as replaced:
        other = threading.Thread(target=torch.save, args=(embeds(SPEC), buffer))
        other.start()
        other.join()
        assert replaced == []
        torch.save(embeds(SPEC), io.BytesIO())
    assert replaced == ["cpu"]
    assert "cpu" in strings(buffer.getvalue())
    assert "mps" not in strings(buffer.getvalue())


def test_threads_that_encode_at_once_get_their_own_tags() -> None:
    payloads: dict[str, bytes] = {}

    def save(location: str) -> None:
        for _ in range(10):
            payloads[location] = encode(embeds(SPEC), location=location)
            assert location in strings(base64.b64decode(payloads[location]))

    names = [f"cuda:{index}" for index in range(8)]
    threads = [threading.Thread(target=save, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(name in strings(base64.b64decode(payloads[name])) for name in names)
