"""A check: one assertion of the suite, with a stable id, a level and a subject."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

MARKER = "tensorizer_check"
LEVELS = ("must", "should", "info")
KINDS = ("format", "engine", "prompt-embeds", "repository")
"""The kinds of subjects. The last is the repository in which the suite runs, with its own tests."""


def check(id: str, *, subject: str, level: str = "must") -> pytest.MarkDecorator:
    """Mark a test as the check `id` ("area/slug") of a `subject`: one of KINDS.

    `level` is "must" (its failure gates), "should" (gates with --tensorizer-strict) or "info".
    """
    if level not in LEVELS or subject not in KINDS or id.count("/") != 1:
        raise ValueError(
            f"check({id!r}, subject={subject!r}, level={level!r}): the id is area/slug, the subject one of "
            f"{', '.join(KINDS)}, and the level one of {', '.join(LEVELS)}"
        )
    return getattr(pytest.mark, MARKER)(id, subject=subject, level=level)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Check:
    """A collected check: `case` is its parameters but for the subject ("float32-2d-transposed")."""

    id: str
    level: str
    subject: str
    case: str

    @classmethod
    def of(cls, item: pytest.Item, subject_names: dict[str, str]) -> Check | None:
        """The check that `item` is, or None. `subject_names` has the names of the subjects that are no parameters."""
        mark = item.get_closest_marker(MARKER)
        if mark is None:
            return None
        kind = mark.kwargs["subject"]
        callspec: Any = getattr(item, "callspec", None)
        case = callspec.id if callspec is not None else ""
        if kind == "format":
            if callspec is None or "tensorizer_format" not in callspec.params:
                raise pytest.UsageError(
                    f"{item.nodeid} is a check of a format, and must take it as the argument `tensorizer_format`"
                )
            name = callspec.params["tensorizer_format"]
            # pytest joins the ids of the parameters with dashes, and the subject comes first: see `parametrize`.
            case = case.removeprefix(name).removeprefix("-")
        else:
            name = subject_names[kind]
        return cls(mark.args[0], mark.kwargs["level"], f"{kind}:{name}", case)

    @property
    def area(self) -> str:
        return self.id.partition("/")[0]

    @property
    def key(self) -> str:
        """What is compared between runs: no version, path or worker in it."""
        return f"{self.id}{f'[{self.case}]' if self.case else ''}@{self.subject}"


CHECK: pytest.StashKey[Check] = pytest.StashKey()
"""Of an item that is a check of one of the subjects of this run."""
