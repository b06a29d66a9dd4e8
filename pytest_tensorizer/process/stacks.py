"""Making faulthandler's stacks readable: thirty frames of pytest stand below each test."""

from __future__ import annotations

import re

_FRAME = re.compile(r'  File "(.*)", line \d+ in .*')
_MACHINERY = re.compile(r"[/\\](_pytest|pluggy|pytest_tensorizer[/\\]process)[/\\]|^<string>$")


def shorten(text: str) -> str:
    """`text` with one line in the place of the frames of pytest, and of this package, at the foot of each stack."""
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
