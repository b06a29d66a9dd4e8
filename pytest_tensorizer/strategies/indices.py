"""Several small numbers in one choice of Hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

_FIRST = ord("a")  # from here on Hypothesis thinks the characters the simpler, the lower they are


def indices(count: int, *, min_size: int = 0, max_size: int) -> st.SearchStrategy[list[int]]:
    """A list of numbers below `count`. Shrinks to a short one of low numbers.

    They are drawn as the letters of a text: that is one choice, where a list of integers would be two for each. And
    not as bytes, as data are: Hypothesis tries what it drew in one place in others of the same kind, and would spend
    most of its examples on that.
    """
    alphabet = [chr(_FIRST + index) for index in range(count)]
    return st.text(alphabet, min_size=min_size, max_size=max_size).map(_numbers)


def _numbers(text: str) -> list[int]:
    return [ord(letter) - _FIRST for letter in text]


def sizes(least: int, most: int) -> st.SearchStrategy[int]:
    """How many there are of something: small numbers more often, none seldom."""
    return st.sampled_from([size for size in range(least, most + 1) for _ in range(max(1, 4 - size) if size else 1)])
