"""Who runs the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, Union, runtime_checkable

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from pytest_tensorizer.checkpoint import Checkpoint

Prompt: TypeAlias = Union[str, Sequence[int], "Tensor"]
"""Text, token ids, or a (tokens, hidden) floating-point tensor: a prompt embedding."""

CAPABILITIES: dict[str, str] = {
    "text": "takes prompts as text",
    "prompt_embeds": "takes prompts as (tokens, hidden) tensors",
    "sampling": "Sampling(temperature > 0, seed) is reproducible",
    "bitwise": "gives, bit for bit, the logprobs of the same module run by transformers",
}
"""What an engine may claim. The checks that compare an engine with itself need none of these."""


@dataclass(frozen=True)
class Sampling:
    """How to choose tokens. `temperature` 0 is greedy; above it, tokens are drawn with `seed`.

    `max_new_tokens` are always generated: an end-of-sequence token does not stop. An encoder ignores it and
    predicts one token for each position of the prompt.
    """

    max_new_tokens: int = 16
    temperature: float = 0.0
    seed: int = 0
    logprobs: bool = True


@dataclass(frozen=True, eq=False)
class Generation:
    """What one prompt gave: `logprobs` is (new_tokens,) float32, the log probability of each chosen token, or None."""

    token_ids: tuple[int, ...]
    text: str
    logprobs: Tensor | None


class LoadedModel(Protocol):
    """A model that an engine holds. `close` frees what it holds, and may be called twice."""

    def weights(self) -> dict[str, Tensor]:
        """Every parameter and buffer, persistent or not, under each of its names."""

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation]:
        """One generation for each prompt, in order."""

    def close(self) -> None:
        """Free the model."""


@runtime_checkable
class Engine(Protocol):
    """What loads a checkpoint and generates.

    `imports` is optional: the names of modules that it imports only when it is used, which clean processes then find
    imported.
    """

    name: str
    capabilities: frozenset[str]

    def load(self, checkpoint: Checkpoint, *, device: str, dtype: torch.dtype) -> LoadedModel:
        """Load `checkpoint`, whose weights were written in `dtype`, onto `device` ("cpu", "cuda:0")."""
