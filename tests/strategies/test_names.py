"""Names: all that people write and that formats could stumble over is drawn."""

from __future__ import annotations

import unicodedata
from collections import Counter
from typing import Any

import pytest
from hypothesis.errors import InvalidArgument
from torch import nn

from pytest_tensorizer.strategies import names
from pytest_tensorizer.strategies.names import code, identifiers, traits, unused
from tests.strategies.draws import drawn, label


@pytest.fixture(scope="module")
def found() -> list[str]:
    return drawn(names(), 900)


def test_all_kinds_are_drawn(found: list[str]) -> None:
    seen = Counter(trait for name in found for trait in traits(name))
    kinds = {"empty", "long", "unicode", "dotted", "reserved", "control"}
    assert set(seen) == {f"name:{kind}" for kind in kinds}
    assert {"__metadata__", "weight", "Weight", "..", "a/b", "a\0b", "\ufeffa"} <= set(found)
    assert {len(name) for name in found if len(name) > 200} == {255, 256, 1000, 65535, 65536}
    assert any(max(map(ord, name)) > 0xFFFF for name in found if name)
    assert any(len(name.encode()) > 65536 for name in found)
    # Most are such as people have.
    assert sum(name.isprintable() and 0 < len(name) < 20 for name in found) > 350


def test_some_are_equal_but_for_case_or_spelling(found: list[str]) -> None:
    assert len({name.lower() for name in found}) < len(set(found))
    spelt = {name for name in found if name.startswith("caf")}
    assert len({unicodedata.normalize("NFC", name) for name in spelt}) < len(spelt)


def test_surrogates_are_drawn_only_if_asked_for(found: list[str]) -> None:
    for name in found:
        name.encode()
    assert sum("name:surrogate" in traits(name) for name in drawn(names(surrogates=True), 200)) > 10
    with pytest.raises(InvalidArgument, match="surrogates=1 is no bool"):
        names(surrogates=1)  # type: ignore[arg-type]


def test_identifiers_can_be_parts_of_modules() -> None:
    found = drawn(identifiers(), 300)
    assert any(not name.isidentifier() for name in found)
    for name in found:
        module = nn.Module()
        if not hasattr(module, name):  # modules have none of these names
            module.register_buffer(name, None)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("", {"empty"}),
        ("a" * 201, {"long"}),
        ("é", {"unicode"}),
        ("a.b", {"dotted"}),
        ("dtype", {"reserved"}),
        ("_a", {"reserved"}),
        ("a\n", {"control"}),
        ("\ud800", {"surrogate", "unicode", "control"}),
        ("a", set()),
    ],
    ids=label,
)
def test_traits(name: str, wanted: set[str]) -> None:
    assert traits(name) == {f"name:{kind}" for kind in wanted}


def test_code_is_short() -> None:
    names: list[Any] = ["", "a", "é" * 65536, "a" * 20, "ab" * 300, "\0" * 30, '"']
    for name in names:
        assert eval(code(name)) == name
    assert code("a" * 1000) == "'a' * 1000"


def test_an_unused_name_begins_with_the_drawn_one() -> None:
    assert unused("a", ()) == "a"
    assert unused("a", {"a", "aa", "b"}) == "aaa"
