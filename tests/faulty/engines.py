"""Engines with one fault each, on top of the reference engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pytest_tensorizer.checkpoint import Checkpoint
from pytest_tensorizer.engines import Generation, LoadedModel, Prompt, Sampling
from pytest_tensorizer.engines.transformers import LoadedModule, TransformersEngine
from pytest_tensorizer.models import from_directory


class StaleAlias(TransformersEngine):
    """Captures the embedding before loading, and embeds with what it captured. Reports the loaded weights."""

    name = "stale-alias"

    def load(self, checkpoint: Checkpoint, *, device: str, dtype: torch.dtype) -> LoadedModel:
        captured = from_directory(checkpoint.directory).skeleton(dtype).get_input_embeddings()  # type: ignore[operator]
        return _Stale(super().load(checkpoint, device=device, dtype=dtype), captured)


class _Stale:
    def __init__(self, loaded: Any, captured: Any) -> None:
        self._loaded: LoadedModule = loaded
        self._captured = captured

    def weights(self) -> dict[str, Tensor]:
        return self._loaded.weights()

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation]:
        embedded: list[Prompt] = []
        for prompt in prompts:
            if isinstance(prompt, str):
                prompt = self._loaded._tokenizer(prompt)["input_ids"]
            if not isinstance(prompt, Tensor):
                prompt = self._captured(torch.tensor(list(prompt))).detach()
            embedded.append(prompt)
        return self._loaded.generate(embedded, sampling)

    def close(self) -> None:
        self._loaded.close()


class ReversesEmbeddings(TransformersEngine):
    """Takes the rows of a prompt embedding last to first."""

    name = "reverses-embeddings"

    def load(self, checkpoint: Checkpoint, *, device: str, dtype: torch.dtype) -> LoadedModel:
        loaded = super().load(checkpoint, device=device, dtype=dtype)
        generate = loaded.generate

        def reversed_(prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation]:
            return generate([p.flip(0) if isinstance(p, Tensor) else p for p in prompts], sampling)

        loaded.generate = reversed_  # type: ignore[method-assign]
        return loaded
