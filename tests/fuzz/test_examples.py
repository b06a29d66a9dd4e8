"""What is tried on a subject: mostly what it claims, and now and then everything else."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_tensorizer.formats import claims
from pytest_tensorizer.formats.safetensors import SafetensorsFormat
from pytest_tensorizer.formats.tensorizer import TensorizerFormat
from pytest_tensorizer.formats.torch import TorchFormat
from pytest_tensorizer.fuzz import examples, properties
from tests.fuzz import subjects
from tests.strategies.draws import drawn

FORMATS = [TorchFormat(), SafetensorsFormat(), TensorizerFormat(), subjects.Limited()]
named = pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)


def unclaimed(format: Any, traits: frozenset[str]) -> list[str]:
    """What a format would have to claim for that, leaving aside views of larger storages."""
    return properties.unclaimed(format, traits - {"offset", "larger-storage"})


@named
def test_most_state_dicts_have_nothing_but_what_is_claimed(format: Any) -> None:
    found = drawn(examples.state_dicts(format), 300)
    claimed = [example for example in found if not unclaimed(format, example.traits)]
    assert len(claimed) > 0.6 * len(found)
    assert len(claimed) < len(found) or format.name == "torch", "and some have more"


@named
def test_those_that_are_claimed_are_not_all_alike(format: Any) -> None:
    found = drawn(examples.state_dicts(format), 600)
    traits: set[str] = set().union(*(example.traits for example in found if not unclaimed(format, example.traits)))
    dtypes = {trait for trait in traits if trait.startswith("dtype:")}
    assert dtypes == {capability for capability in format.capabilities if capability.startswith("dtype:")}
    assert ("shared" in traits) is claims(format, "shared-storage")


@named
def test_most_modules_have_nothing_but_claimed_dtypes(format: Any) -> None:
    found = drawn(examples.modules(format), 200)
    dtypes = [{t for t in unclaimed(format, example.traits) if t.startswith("dtype:")} for example in found]
    assert sum(not needed for needed in dtypes) > 0.6 * len(found)


def test_the_bools_of_modules_are_zero_or_one() -> None:
    """What `copy_` makes of others is nothing that a format has done."""
    seen = 0
    for example in drawn(examples.modules(TorchFormat()), 300):
        for _, tensor in [*example.build().named_parameters(), *example.build().named_buffers()]:
            if tensor.dtype is torch.bool:
                seen += 1
                assert set(tensor.contiguous().view(torch.uint8).flatten().tolist()) <= {0, 1}
    assert seen


def test_those_of_state_dicts_are_any_bytes() -> None:
    odd = 0
    for example in drawn(examples.state_dicts(TorchFormat()), 600):
        for tensor in example.dense().values():
            if tensor.dtype is torch.bool:
                odd += bool((tensor.contiguous().view(torch.uint8) > 1).any())
    assert odd
