"""Each rule: what keeps it, what may refuse, and one subject for each way to break it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_tensorizer.formats.safetensors import SafetensorsFormat
from pytest_tensorizer.formats.torch import TorchFormat
from pytest_tensorizer.fuzz import properties
from pytest_tensorizer.fuzz.outcome import OUT_OF_MEMORY, Violation, of_exception
from pytest_tensorizer.prompt_embeds import EmbedsSpec, load_prompt_embeds
from pytest_tensorizer.strategies import Cut, Damaged, Dense, Flip, Module, Part, Payload, Same, StateDict
from tests.faulty import formats as faulty
from tests.fuzz import subjects

BITS = StateDict({
    "b": Dense(torch.bfloat16, (2, 2), [1.0, 2.0, 3.0, 4.0]),
    "a": Dense(torch.int64, (3,), [7, 8, 9]),
})  # fmt: skip
FLOAT = Dense(torch.float32, (2, 2), [1.0, 2.0, 3.0, 4.0])


# State dicts


@pytest.mark.parametrize("format", [faulty.Healthy(), SafetensorsFormat()], ids=lambda format: str(format.name))
def test_a_state_dict_that_comes_back_as_it_was(format: Any, tmp_path: Path) -> None:
    assert properties.round_trip(format, BITS, tmp_path) == ""


@pytest.mark.parametrize(
    ("format", "faults"),
    [
        (faulty.DropsLastTensor(), {"wrong missing"}),
        (subjects.AddsOne(), {"wrong extra"}),
        (subjects.Widens(), {"wrong dtype"}),
        (subjects.FlipsABit(), {"wrong bits"}),
        (subjects.ReversesValues(), {"wrong dtype", "wrong shape"}),
        (subjects.Flattens(), {"wrong shape"}),
        (faulty.EmptiesTheCallers(), {"changed the caller's mapping"}),
        (subjects.SortsMapping(), {"changed the caller's mapping"}),
        (subjects.ReplacesInMapping(), {"changed the caller's mapping"}),
        (subjects.ZeroesTensors(), {"changed the caller's bits"}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_state_dict_that_does_not(format: Any, faults: set[str], tmp_path: Path) -> None:
    with pytest.raises(Violation) as caught:
        properties.round_trip(format, BITS, tmp_path)
    assert caught.value.faults.keys() == faults


def test_each_fault_is_told_with_the_first_tensor_that_has_it(tmp_path: Path) -> None:
    with pytest.raises(Violation) as caught:
        properties.round_trip(subjects.FlipsABit(), BITS, tmp_path)
    told = caught.value.faults["wrong bits"]
    assert told.startswith("'b' differs in 1 of 4 elements, first at [0, 0]: expected 1.0 (0x3f80), got 1.0078")
    assert str(caught.value) == told


def test_what_is_claimed_may_not_be_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="no bfloat16"):
        properties.round_trip(subjects.RefusesBfloat16(), BITS, tmp_path)


def test_what_is_not_claimed_may_be_refused(tmp_path: Path) -> None:
    told = properties.round_trip(subjects.Limited(), BITS, tmp_path)
    assert told == "dtype:bfloat16, dtype:int64 (TypeError: no bfloat16)"


def test_what_is_not_claimed_may_be_taken_but_not_changed(tmp_path: Path) -> None:
    class Wrong(subjects.FlipsABit):
        capabilities = frozenset()

    with pytest.raises(Violation, match="'b' differs in 1 of 4 elements"):
        properties.round_trip(Wrong(), BITS, tmp_path)


def test_memory_is_no_reason_to_refuse(tmp_path: Path) -> None:
    with pytest.raises(MemoryError):
        properties.round_trip(subjects.RunsOutOfMemory(), BITS, tmp_path)


@pytest.mark.parametrize(
    ("entries", "needed"),
    [
        ({"": FLOAT}, "any-name"),
        ({"a\0b": FLOAT}, "any-name"),
        ({"a": FLOAT, "b": Same("a")}, "shared-storage"),
        ({"a": FLOAT, "b": Part("a", 1, 2)}, "shared-storage"),
        ({"a": Dense(torch.float32, (2, 2), [1.0, 2.0, 3.0, 4.0], strides=(1, 2))}, "noncontiguous"),
        ({"a": Dense(torch.complex64, (2,), [1.0, 2.0], conj=True)}, "lazy-views"),
    ],
    ids=["empty", "control", "same", "part", "transposed", "conj"],
)
def test_what_each_trait_needs(entries: dict[str, Any], needed: str, tmp_path: Path) -> None:
    """A format that lacks nothing else may refuse it, and one that has that may not."""

    class Refuses(TorchFormat):
        def save(self, tensors: Any, target: Any, **options: Any) -> None:
            raise NotImplementedError("not this")

    class Lacks(Refuses):
        capabilities = TorchFormat.capabilities - {needed}

    assert needed in TorchFormat.capabilities
    example = StateDict(entries)
    assert properties.round_trip(Lacks(), example, tmp_path).startswith(needed)
    with pytest.raises(NotImplementedError):
        properties.round_trip(Refuses(), example, tmp_path)


# Modules

TIED = Module(
    parameters={"weight": Dense(torch.float32, (2, 2), [1.0, 2.0, 3.0, 4.0], requires_grad=True)},
    buffers={"scale": Dense(torch.float32, (1,), [9.0]), "cache": Dense(torch.float32, (1,), [5.0])},
    transient=("cache",),
    children={"head": Module(parameters={"weight": Same("weight")})},
)
FROZEN = Module(parameters={"weight": FLOAT, "bias": Dense(torch.float32, (2,), [5.0, 6.0], requires_grad=True)})


@pytest.mark.parametrize("example", [TIED, FROZEN, Module()], ids=["tied", "frozen", "empty"])
def test_a_module_that_comes_back_as_it_was(example: Module, tmp_path: Path) -> None:
    assert properties.module(faulty.Healthy(), example, tmp_path) == ""


@pytest.mark.parametrize(
    ("format", "example", "faults"),
    [
        (faulty.Unties(), TIED, {"wrong ties"}),
        (faulty.Replaces(), FROZEN, {"wrong aliases"}),
        (faulty.Unfreezes(), FROZEN, {"wrong requires_grad"}),
        (subjects.LeavesOutBuffers(), TIED, {"wrong bits"}),
        (subjects.HalvesSource(), FROZEN, {"wrong bits"}),
        (subjects.ThawsSource(), FROZEN, {"wrong requires_grad"}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_module_that_does_not(format: Any, example: Module, faults: set[str], tmp_path: Path) -> None:
    with pytest.raises(Violation) as caught:
        properties.module(format, example, tmp_path)
    assert caught.value.faults.keys() == faults


# Damaged files


def damaged(format: Any, directory: Path, *edits: Any) -> Damaged:
    return Damaged(properties.good_file(format, directory), edits)


def test_the_good_file_has_what_is_claimed_of_the_tensors(tmp_path: Path) -> None:
    for format in (faulty.Healthy(), SafetensorsFormat()):
        path = tmp_path / f"again{format.suffix}"
        path.write_bytes(properties.good_file(format, tmp_path))
        loaded = format.load(path)
        assert {name: tensor.dtype for name, tensor in loaded.items()} == {
            "weight": torch.float32, "bias": torch.bfloat16, "steps": torch.int64,
        }  # fmt: skip
    assert properties.good_tensors(subjects.Limited()).keys() == {"weight"}


def test_half_a_file_is_refused(tmp_path: Path) -> None:
    told = properties.damaged_file(faulty.Healthy(), damaged(faulty.Healthy(), tmp_path, Cut(200)), tmp_path)
    assert told.startswith("RuntimeError: PytorchStreamReader failed")


def test_half_a_file_may_not_be_taken(tmp_path: Path) -> None:
    format = subjects.TakesHalfFiles()
    with pytest.raises(Violation) as caught:
        properties.damaged_file(format, damaged(format, tmp_path, Cut(200)), tmp_path)
    assert "accepted missing" in caught.value.faults
    assert "accepted bits" in caught.value.faults


def test_a_flipped_bit_may_be_taken_by_a_format_that_does_not_verify(tmp_path: Path) -> None:
    format = SafetensorsFormat()
    size = len(properties.good_file(format, tmp_path))
    assert properties.damaged_file(format, damaged(format, tmp_path, Flip(size - 1, 0)), tmp_path) == ""


def test_and_not_by_one_that_claims_to(tmp_path: Path) -> None:
    format = subjects.VerifiesNothing()
    size = len(properties.good_file(format, tmp_path))
    with pytest.raises(Violation) as caught:
        properties.damaged_file(format, damaged(format, tmp_path, Flip(size - 1, 0)), tmp_path)
    assert caught.value.faults.keys() == {"accepted bits"}


def test_memory_without_bounds_is_no_refusal(tmp_path: Path) -> None:
    class Allocates(faulty.Healthy):
        def load(self, source: Any, **options: Any) -> Any:
            return {"weight": torch.empty(2**60, dtype=torch.uint8)}

    with pytest.raises(RuntimeError) as caught:
        properties.damaged_file(Allocates(), damaged(faulty.Healthy(), tmp_path, Cut(200)), tmp_path)
    assert list(of_exception(caught.value).faults) == [OUT_OF_MEMORY]


# Prompt embeddings

GOOD = Payload(Dense(torch.float32, (3, 2), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), EmbedsSpec(2, torch.bfloat16))
CUT = Payload(Dense(torch.float32, (3, 2), [1.0]), EmbedsSpec(2, torch.bfloat16), broken="truncated")


def test_a_payload_that_is_taken(tmp_path: Path) -> None:
    assert (GOOD.verdict, CUT.verdict) == ("accept", "reject")
    assert properties.prompt_embeds(load_prompt_embeds, GOOD, tmp_path) == ""


def test_a_payload_that_is_refused(tmp_path: Path) -> None:
    assert properties.prompt_embeds(load_prompt_embeds, CUT, tmp_path) != ""


@pytest.mark.parametrize(
    ("loader", "example", "faults"),
    [
        (subjects.accepts_anything, CUT, {"accepted it"}),
        (subjects.returns_float64, GOOD, {"wrong dtype"}),
        (subjects.returns_sparse, GOOD, {"not dense on the CPU"}),
        (subjects.returns_a_list, GOOD, {"not dense on the CPU"}),
        (subjects.reverses_rows, GOOD, {"wrong bits"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_loader_that_breaks_the_rule(loader: Any, example: Payload, faults: set[str], tmp_path: Path) -> None:
    with pytest.raises(Violation) as caught:
        properties.prompt_embeds(loader, example, tmp_path)
    assert caught.value.faults.keys() == faults


def test_a_good_payload_may_not_be_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not today"):
        properties.prompt_embeds(subjects.refuses_everything, GOOD, tmp_path)


def test_only_a_value_error_refuses(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        properties.prompt_embeds(subjects.raises_type_error, CUT, tmp_path)
