"""Loaders are named on the command line: a name leads to a callable, or to an error that says what to
write."""

from __future__ import annotations

import pytest

from pytest_tensorizer.prompt_embeds import load_prompt_embeds, resolve


def test_the_reference_loader_has_a_short_name() -> None:
    assert resolve("reference") is load_prompt_embeds


def test_a_loader_of_another_project() -> None:
    assert resolve("pytest_tensorizer.prompt_embeds.reference:load_prompt_embeds") is load_prompt_embeds


@pytest.mark.parametrize(
    "name",
    ["", "torch", "refrence", "no_such_package_here:load", "pytest_tensorizer.prompt_embeds:no_such_loader"],
)
def test_a_name_that_leads_nowhere(name: str) -> None:
    with pytest.raises(ValueError, match="prompt-embeds loader") as caught:
        resolve(name)
    assert repr(name) in str(caught.value)


def test_what_is_named_must_be_callable() -> None:
    with pytest.raises(TypeError, match=r"INVALID.*cannot be called: name a function"):
        resolve("pytest_tensorizer.prompt_embeds:INVALID")


def test_a_name_must_be_a_string() -> None:
    with pytest.raises(TypeError, match="None is no name"):
        resolve(None)  # type: ignore[arg-type]
