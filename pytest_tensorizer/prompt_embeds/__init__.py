"""Prompt embeddings as clients send them to an inference server, and a reference loader for them.

A client sends `base64(torch.save(tensor))`. What a server must make of it does not depend on which of the
many equal ways the client chose: see `load_prompt_embeds` for the contract, `encode` and `to_layout` for the
ways, `INVALID` for what must be refused, and `resolve` for naming the loader of another project.
"""

from __future__ import annotations

from pytest_tensorizer.prompt_embeds.encode import encode, foreign_location
from pytest_tensorizer.prompt_embeds.layouts import LAYOUTS, to_layout
from pytest_tensorizer.prompt_embeds.loader import PromptEmbedsLoader, resolve
from pytest_tensorizer.prompt_embeds.payloads import INVALID, embeds
from pytest_tensorizer.prompt_embeds.reference import load_prompt_embeds
from pytest_tensorizer.prompt_embeds.rejection import PromptEmbedsRejected
from pytest_tensorizer.prompt_embeds.spec import FLOATING_DTYPES, EmbedsSpec

__all__ = [
    "FLOATING_DTYPES",
    "INVALID",
    "LAYOUTS",
    "EmbedsSpec",
    "PromptEmbedsLoader",
    "PromptEmbedsRejected",
    "embeds",
    "encode",
    "foreign_location",
    "load_prompt_embeds",
    "resolve",
    "to_layout",
]
