"""Making faulthandler's stacks readable: thirty frames of pytest stand below each test."""

from __future__ import annotations

import re

from pytest_tensorizer.process.ending import Ending

_FRAME = re.compile(r'  File "(.*)", line \d+ in .*')
_MODULES = re.compile(r"\n\nExtension modules: .* \(total: \d+\)$", re.MULTILINE)
_MACHINERY = re.compile(r"[/\\](_pytest|pluggy|pytest_tensorizer[/\\]process)[/\\]|^<string>$")


def readable(ending: Ending) -> str:
    """The standard error of a child, with stacks that can be read."""
    text = shorten(ending.stderr)
    # It was asked for its stacks by a signal, and faulthandler takes that for its own idea.
    return text.replace("Fatal Python error: Aborted", "When the time was over:", 1) if ending.timed_out else text


def shorten(text: str) -> str:
    """`text` with one line in the place of the frames of pytest, and of this package, at the foot of each stack.

    And without the list of extension modules below the stacks.
    """
    text = _MODULES.sub("", text)
    lines: list[str] = []
    foot: list[str] = []  # frames that may turn out to be the last ones of their stack
    for line in [*text.split("\n"), ""]:
        frame = _FRAME.fullmatch(line)
        if frame and _MACHINERY.search(frame[1]):
            foot.append(line)
            continue
        if len(foot) > 1 and not frame:
            foot = [f"  … and {len(foot)} frames of pytest"]
        lines += [*foot, line]
        foot = []
    return "\n".join(lines[:-1])
