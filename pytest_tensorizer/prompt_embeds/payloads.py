"""Embeddings that a loader must take, and objects that it must refuse, ready to be encoded.

Everything here is small, made anew by each call and the same each time.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from pytest_tensorizer.prompt_embeds.layouts import to_layout
from pytest_tensorizer.prompt_embeds.sparse import use_up_torch_warnings
from pytest_tensorizer.prompt_embeds.spec import EmbedsSpec

TOKENS = 4
"""The rows of an embedding where nothing else is asked for."""


def embeds(spec: EmbedsSpec, *, tokens: int = TOKENS, seed: int = 0, dtype: torch.dtype | None = None) -> Tensor:
    """A dense `(tokens, spec.hidden_size)` embedding in `dtype`, by default that of `spec`.

    Its values are quarters between -1.75 and 1.75, which every dtype of `FLOATING_DTYPES` holds exactly, so
    that a cast between any two of them changes nothing. About half of them are zero, never -0.0, so that
    sparse layouts have something to leave out; the first and the last are not.
    """
    generator = torch.Generator().manual_seed(seed)
    shape = (tokens, spec.hidden_size)
    quarters = torch.randint(-7, 8, shape, generator=generator, device="cpu")
    kept = torch.randint(0, 2, shape, generator=generator, device="cpu")
    values = quarters * kept
    values.view(-1)[:1] = 1
    values.view(-1)[-1:] = 3
    return (values.to(torch.float32) / 4).to(dtype or spec.dtype)


def _wrong_hidden_size(spec: EmbedsSpec) -> Tensor:
    return embeds(EmbedsSpec(spec.hidden_size + 1, spec.dtype))


def _transposed(spec: EmbedsSpec) -> Tensor:
    return embeds(spec, tokens=spec.hidden_size + 1).t()


def _batch_of_two(spec: EmbedsSpec) -> Tensor:
    return embeds(spec).expand(2, -1, -1).contiguous()


def _of_dtype(dtype: torch.dtype) -> Callable[[EmbedsSpec], Tensor]:
    return lambda spec: embeds(spec, dtype=torch.float32).mul(4).to(dtype)


def _quantized(spec: EmbedsSpec) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces that it will move quantized tensors elsewhere
        return torch.quantize_per_tensor(embeds(spec, dtype=torch.float32), 0.25, 0, torch.qint8)


def _nested(layout: torch.layout) -> Callable[[EmbedsSpec], Tensor]:
    def build(spec: EmbedsSpec) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch announces that nested tensors are a prototype
            rows = embeds(spec, dtype=torch.float32)
            return torch.nested.nested_tensor([rows, rows[:2]], layout=layout)

    return build


def _coo_with_row(row: int) -> Callable[[EmbedsSpec], Tensor]:
    """A COO tensor whose last entry claims to lie in `row`."""

    def build(spec: EmbedsSpec) -> Tensor:
        good = to_layout(embeds(spec), "coo")
        indices = good.indices().clone()
        indices[0, -1] = row
        return torch.sparse_coo_tensor(indices, good.values(), good.shape, check_invariants=False)

    return build


def _coo_falsely_coalesced(spec: EmbedsSpec) -> Tensor:
    """A COO tensor that claims to have no duplicates, and holds every entry twice."""
    good = to_layout(embeds(spec), "coo")
    indices, values = torch.cat([good.indices()] * 2, dim=1), torch.cat([good.values()] * 2)
    return torch.sparse_coo_tensor(indices, values, good.shape, is_coalesced=True, check_invariants=False)


def _compressed(layout: str, damage: Callable[[Tensor, Tensor], None]) -> Callable[[EmbedsSpec], Tensor]:
    """A compressed sparse tensor whose (compressed, plain) indices went through `damage`."""

    def build(spec: EmbedsSpec) -> Tensor:
        use_up_torch_warnings()
        good = to_layout(embeds(spec), layout)
        by_row = layout in ("csr", "bsr")
        compressed = (good.crow_indices() if by_row else good.ccol_indices()).clone()
        plain = (good.col_indices() if by_row else good.row_indices()).clone()
        damage(compressed, plain)
        return torch.sparse_compressed_tensor(
            compressed, plain, good.values(), good.shape, layout=good.layout, check_invariants=False
        )

    return build


def _last_pointer_past_the_end(compressed: Tensor, plain: Tensor) -> None:
    compressed[-1] = len(plain) + 3


def _pointers_fall(compressed: Tensor, plain: Tensor) -> None:
    compressed[1] = len(plain) + 1


def _index_out_of_range(compressed: Tensor, plain: Tensor) -> None:
    plain[-1] = 1 << 20


def _index_negative(compressed: Tensor, plain: Tensor) -> None:
    plain[0] = -1


_DAMAGES: dict[str, Callable[[Tensor, Tensor], None]] = {
    "bad-pointers": _last_pointer_past_the_end,
    "falling-pointers": _pointers_fall,
    "index-out-of-range": _index_out_of_range,
    "negative-index": _index_negative,
}

INVALID: Mapping[str, Callable[[EmbedsSpec], object]] = MappingProxyType(
    {
        "none": lambda spec: None,
        "list-of-numbers": lambda spec: embeds(spec).tolist(),
        "dict-of-tensors": lambda spec: {"prompt_embeds": embeds(spec)},
        "list-of-tensors": lambda spec: [embeds(spec)],
        "rank-0": lambda spec: embeds(spec)[0, 0].clone(),
        "rank-1": lambda spec: embeds(spec)[0].clone(),
        "rank-3-batch-of-two": _batch_of_two,
        "rank-4": lambda spec: embeds(spec)[None, None],
        "wrong-hidden-size": _wrong_hidden_size,
        "transposed": _transposed,
        "zero-rows": lambda spec: embeds(spec, tokens=0),
        "integer": _of_dtype(torch.int64),
        "uint8": _of_dtype(torch.uint8),
        "bool": _of_dtype(torch.bool),
        "complex": _of_dtype(torch.complex64),
        "quantized": _quantized,
        "meta": lambda spec: torch.empty(TOKENS, spec.hidden_size, dtype=spec.dtype, device="meta"),
        "nested": _nested(torch.strided),
        "jagged": _nested(torch.jagged),
        "coo-index-out-of-range": _coo_with_row(1 << 20),
        "coo-negative-index": _coo_with_row(-1),
        "coo-falsely-coalesced": _coo_falsely_coalesced,
    }
    | {
        f"{layout}-{name}": _compressed(layout, damage)
        for layout in ("csr", "csc", "bsr", "bsc")
        for name, damage in _DAMAGES.items()
    }
)
"""What a loader must refuse with a ValueError: a name, and a function of the spec that builds the object to
encode.

The invalid sparse tensors are built with torch's checks off: encode them, but do nothing else with them.
Converting one to dense reads or writes outside its memory.
"""
