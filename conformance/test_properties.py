"""Rules that hold for whatever is drawn: a hundred examples here, and as many as there is time for with
--tensorizer-fuzz. They are tried in processes that may crash, hang or run out of memory.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from pathlib import Path

import pytest

from pytest_tensorizer.formats import Format
from pytest_tensorizer.fuzz import examples, properties
from pytest_tensorizer.process.limits import zygotes_are_available
from pytest_tensorizer.prompt_embeds import PromptEmbedsLoader
from pytest_tensorizer.strategies import Damaged, damaged, payloads
from pytest_tensorizer.suite.check import check
from pytest_tensorizer.suite.run import RUN
from pytest_tensorizer.suite.search import PropertySearch
from pytest_tensorizer.suite.skips import missing, not_claimed


@pytest.fixture
def search(request: pytest.FixtureRequest, tmp_path: Path) -> PropertySearch:
    if not zygotes_are_available():
        missing("linux", "examples are tried in forked processes, with pidfds")
    return request.config.stash[RUN].search(request.node, tmp_path)


@check("roundtrip/any-state-dict", subject="format")
@pytest.mark.fresh_process(timeout=None)
def test_any_state_dict(tensorizer_format: Format, search: PropertySearch) -> None:
    """Any state dict comes back as it was, bit for bit, and saving leaves the caller's own as they were.

    Of any dtype, shape and strides, with any names, with tensors that share memory. What a format does not claim it
    may refuse.
    """
    search.run(properties.round_trip, tensorizer_format, examples.state_dicts(tensorizer_format))


@check("modules/any-module", subject="format")
@pytest.mark.fresh_process(timeout=None)
def test_any_module(tensorizer_format: Format, search: PropertySearch) -> None:
    """Any module that is loaded into another of its structure is the same: bits, kinds, ties and every facet."""
    if not hasattr(tensorizer_format, "save_module"):
        not_claimed(tensorizer_format.name, "modules")
    search.run(properties.module, tensorizer_format, examples.modules(tensorizer_format))


@check("integrity/damaged-file", subject="format")
@pytest.mark.fresh_process(timeout=None)
def test_damaged_file(tensorizer_format: Format, search: PropertySearch) -> None:
    """A damaged file is refused with an exception: no crash, no hang, no allocation beyond measure.

    Where a format claims `verify`, no damage that changes a tensor passes; elsewhere, no file whose end is missing.
    """
    file = search.aside(partial(properties.good_file, tensorizer_format))
    search.run(
        properties.damaged_file,
        tensorizer_format,
        damaged(file),
        sends=attrgetter("edits"),
        receives=partial(Damaged, file),
    )


@check("prompt-embeds/any-payload", subject="prompt-embeds")
@pytest.mark.fresh_process(timeout=None)
def test_any_payload(tensorizer_prompt_embeds_loader: PromptEmbedsLoader, search: PropertySearch) -> None:
    """Whatever way of sending an embedding a client has chosen, it comes out the same; what is none is refused."""
    search.run(properties.prompt_embeds, tensorizer_prompt_embeds_loader, payloads())
