"""How a payload is refused: one short, printable line, whatever the payload held."""

from __future__ import annotations

_LONGEST = 190


class PromptEmbedsRejected(ValueError):
    """The payload is not an embedding that the model can take.

    The message names `prompt_embeds`, is printable and shorter than 200 characters, so that a server can send
    it to the client and log it as it is. What lower layers said is in `__cause__`.
    """


def rejection(problem: str) -> PromptEmbedsRejected:
    """The exception that says `problem`, which may quote text that came out of the payload."""
    # A payload chooses parts of some messages: a newline or an escape sequence in them would forge log lines.
    text = "".join(char if char.isprintable() else " " for char in f"prompt_embeds: {problem}")
    text = " ".join(text.split())
    return PromptEmbedsRejected(text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "...")
