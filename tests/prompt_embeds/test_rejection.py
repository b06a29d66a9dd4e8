"""Whatever a payload smuggles into a message, one short printable line comes out."""

from __future__ import annotations

import pickle

import pytest

from pytest_tensorizer.prompt_embeds import PromptEmbedsRejected
from pytest_tensorizer.prompt_embeds.rejection import rejection


@pytest.mark.parametrize("problem", ["x" * 5000, "a\nb\r\n\x1b[31mred\x00\u2028end", "", "\ud800"])
def test_one_short_printable_line(problem: str) -> None:
    text = str(rejection(problem))
    assert text.startswith("prompt_embeds:")
    assert len(text) < 200
    assert text.isprintable()


def test_what_fits_is_said_in_full() -> None:
    assert str(rejection("tensor of shape (4, 7)\n has hidden size 7")) == (
        "prompt_embeds: tensor of shape (4, 7) has hidden size 7"
    )


def test_it_is_a_value_error_that_crosses_processes() -> None:
    error = rejection("too large")
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, ValueError)
    assert type(copy) is PromptEmbedsRejected
    assert str(copy) == str(error)
