"""What to try on a subject: mostly what it claims, so that most examples get further than a refusal."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from pytest_tensorizer.formats import Format, claims
from pytest_tensorizer.strategies import Dense, Module, StateDict, module_specs, state_dict_specs, tensor_specs
from pytest_tensorizer.strategies.dtypes import all_dtypes
from pytest_tensorizer.strategies.names import names, plain

_CLAIMED = (True, True, True, False)


def state_dicts(format: Format) -> st.SearchStrategy[StateDict]:
    """State dicts for `format`: three in four have nothing but what it claims."""
    usual = state_dict_specs(
        _tensors(format),
        names=names() if claims(format, "any-name") else plain(),
        shared=claims(format, "shared-storage"),
    )
    return _mostly(usual, state_dict_specs())


def modules(format: Format) -> st.SearchStrategy[Module]:
    """Modules for `format`: three in four have nothing but what it claims."""
    return _mostly(module_specs(_tensors(format, requires_grad=st.booleans())), module_specs())


def _tensors(format: Format, **options: Any) -> st.SearchStrategy[Dense]:
    claimed = [dtype for dtype in all_dtypes() if claims(format, f"dtype:{str(dtype).removeprefix('torch.')}")]
    if not claims(format, "noncontiguous"):
        options["strides"] = "contiguous"
    if not claims(format, "lazy-views"):
        options["view"] = "plain"
    return tensor_specs(st.sampled_from(claimed), **options)


def _mostly(usual: st.SearchStrategy[Any], anything: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.sampled_from(_CLAIMED).flatmap(lambda is_claimed: usual if is_claimed else anything)
