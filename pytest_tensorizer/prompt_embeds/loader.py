"""What a loader of prompt embeddings is, and how one is named."""

from __future__ import annotations

from typing import Protocol, cast

from torch import Tensor

from pytest_tensorizer.prompt_embeds.reference import load_prompt_embeds
from pytest_tensorizer.prompt_embeds.spec import EmbedsSpec

_WHAT = "prompt-embeds loader"


class PromptEmbedsLoader(Protocol):
    """Anything that can be called as `loader(payload, spec)`.

    `payload` is the base64 text of a `torch.save` archive, as bytes. What comes back is a dense CPU tensor of
    shape `(tokens, spec.hidden_size)` and dtype `spec.dtype`. A ValueError rejects the payload; any other
    exception is a defect of the loader.
    """

    def __call__(self, payload: bytes, spec: EmbedsSpec, /) -> Tensor: ...


def resolve(name: str) -> PromptEmbedsLoader:
    """The loader called `name`: "reference", or `package.module:attribute` for one that a project brings.

    Raises:
        ValueError: there is no loader of that name, module or attribute.
        TypeError: `name` is no string, or names something that cannot be called.
    """
    if not isinstance(name, str):
        raise TypeError(f"{_WHAT} {name!r} is no name: pass 'reference' or 'package.module:attribute'")
    if name == "reference":
        return load_prompt_embeds
    from pytest_tensorizer.resolve import load_target

    found = load_target(name, what=_WHAT, builtin=("reference",))
    if not callable(found):
        raise TypeError(
            f"{_WHAT} {name!r} is a {type(found).__name__}, which cannot be called: name a function that "
            "takes (payload, spec) and returns a tensor"
        )
    return cast(PromptEmbedsLoader, found)
