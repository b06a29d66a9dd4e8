"""What to try on a subject: mostly what it claims, so that most examples get further than a refusal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st

from pytest_tensorizer.formats import Format, claims
from pytest_tensorizer.strategies import Dense, Module, StateDict, module_specs, state_dict_specs, tensor_specs
from pytest_tensorizer.strategies.dtypes import all_dtypes
from pytest_tensorizer.strategies.names import names, plain

_CLAIMED = (True, True, True, False)


def state_dicts(format: Format) -> st.SearchStrategy[StateDict]:
    """State dicts for `format`: three in four have nothing but what it claims.

    But for views of larger storages, which are in all of them: hardly any format refuses one, and many are wrong.
    """
    usual = state_dict_specs(
        _tensors(format),
        names=names() if claims(format, "any-name") else plain(),
        shared=claims(format, "shared-storage"),
    )
    return _mostly(usual, state_dict_specs())


def modules(format: Format) -> st.SearchStrategy[Module]:
    """Modules for `format`: three in four have nothing but what it claims."""
    grad = st.booleans()
    usual, any_tensors = _tensors(format, requires_grad=grad), tensor_specs(requires_grad=grad)
    return _mostly(module_specs(usual.map(_of_plain_bools)), module_specs(any_tensors.map(_of_plain_bools)))


def _of_plain_bools(spec: Dense) -> Dense:
    """Loading into a module is copying, most often, and torch's `copy_` makes 1 of each byte of a bool that is true."""
    return replace(spec, data=bytes(byte & 1 for byte in spec.storage())) if spec.dtype is torch.bool else spec


def _tensors(format: Format, **options: Any) -> st.SearchStrategy[Dense]:
    claimed = [dtype for dtype in all_dtypes() if claims(format, f"dtype:{str(dtype).removeprefix('torch.')}")]
    if not claims(format, "noncontiguous"):
        options["strides"] = "contiguous"
    if not claims(format, "lazy-views"):
        options["view"] = "plain"
    return tensor_specs(st.sampled_from(claimed), **options)


def _mostly(usual: st.SearchStrategy[Any], anything: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.sampled_from(_CLAIMED).flatmap(lambda is_claimed: usual if is_claimed else anything)
