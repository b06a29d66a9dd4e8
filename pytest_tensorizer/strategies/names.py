"""Names of tensors: what people write, and what a format could stumble over."""

from __future__ import annotations

from collections.abc import Container

from hypothesis import strategies as st

from pytest_tensorizer.strategies import arguments

_LETTERS = "abwé"
_RESERVED = (
    "weight", "Weight", "__metadata__", "_metadata", "dtype", "shape", "data_offsets", "self", "state_dict",
    "_extra_state", "caf\u00e9", "cafe\u0301", "a/b", "..", "/", "a\\b", "a\0b", "a\nb", '"', "{}", " ", "\ufeffa",
    "\u202ea", "\U0001f525",
)  # fmt: skip
_LENGTHS = (255, 256, 1000, 65535, 65536)
_LONG = st.tuples(st.sampled_from("aé"), st.sampled_from(_LENGTHS)).map(lambda drawn: drawn[0] * drawn[1])
# What UTF-8 can write; but to find that out from the name of the codec takes Hypothesis a second.
_ANY = st.characters(exclude_categories=["Cs"])
_PLAIN = st.text(_LETTERS, min_size=1, max_size=3)
_DOTTED = st.lists(_PLAIN, min_size=2, max_size=4).map(".".join)


def names(*, surrogates: bool = False) -> st.SearchStrategy[str]:
    """A name as a state dict may have it, over all of Unicode.

    Plain ones, dotted ones, the empty one; what formats use themselves; pairs that are equal but for case or for how
    Unicode spells them; control characters; lengths around 2**8 and 2**16. With `surrogates` also lone ones, which no
    encoding can write, so that all that a format can do is to refuse them. Shrinks to "a".
    """
    arguments.flag("surrogates", surrogates)
    found = [_PLAIN, _PLAIN, _DOTTED, st.sampled_from(_RESERVED), st.text(_ANY, max_size=8), _LONG]
    if surrogates:
        found.append(st.text(st.characters(min_codepoint=0xD800, max_codepoint=0xDFFF), min_size=1, max_size=2))
    return st.one_of(found)


def plain() -> st.SearchStrategy[str]:
    """A name as people write it: plain or dotted, of a few letters of several alphabets. Shrinks to "a"."""
    return st.one_of(_PLAIN, _PLAIN, _DOTTED)


def identifiers() -> st.SearchStrategy[str]:
    """A name as a part of a module may have it: not empty, and without a dot."""
    return st.one_of(_PLAIN, st.text(_ANY, min_size=1, max_size=8).filter(lambda name: "." not in name))


def unused(name: str, used: Container[str]) -> str:
    """`name`, longer where it is in use. Drawing another one instead would keep Hypothesis from making it simpler."""
    while name in used:
        name += "a"
    return name


def traits(name: str) -> frozenset[str]:
    """What is particular about a name: "name:long", "name:unicode", …"""
    flags = {
        "name:empty": not name, "name:long": len(name) > 200, "name:unicode": not name.isascii(),
        "name:dotted": "." in name,
        "name:reserved": name.startswith("_") or name in ("dtype", "shape", "data_offsets"),
        "name:control": not name.isprintable(), "name:surrogate": any("\ud800" <= char <= "\udfff" for char in name),
    }  # fmt: skip
    return frozenset(trait for trait, is_so in flags.items() if is_so)


def code(name: str) -> str:
    """The repr of a name; of a long one that is a repetition, as a product."""
    if len(name) > 20 and len(set(name)) == 1:
        return f"{name[0]!r} * {len(name)}"
    return repr(name)
