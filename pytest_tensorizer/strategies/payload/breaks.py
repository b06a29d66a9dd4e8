"""The one thing that is wrong with a payload."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from pytest_tensorizer.prompt_embeds.spec import EmbedsSpec
from pytest_tensorizer.strategies.dense import Dense, Subclass
from pytest_tensorizer.strategies.payload import containers
from pytest_tensorizer.strategies.payload.containers import Reduced
from pytest_tensorizer.strategies.sparse import Compressed, Coo

if TYPE_CHECKING:
    from pytest_tensorizer.strategies.payload.payload import Payload

Specification: TypeAlias = "Dense | Coo | Compressed"
ANY = (Dense, Coo, Compressed)
SPARSE = (Coo, Compressed)


def _same(value: Any, *_: Any) -> Any:
    return value


def _build(tensor: Specification) -> object:
    return tensor.build()


@dataclass(frozen=True)
class Break:
    """One thing that is wrong with a payload, in one of the steps in which it is made.

    Attributes:
        says: what is wrong, for a person.
        verdict: "reject", or "either" where reasonable servers differ.
        keeps: whether what the payload holds is still known, so that a server that accepts it returns just that.
        sent: makes another specification of that of the tensor.
        saved: makes the object to save of the specification.
        records: changes the records of the zip archive.
        file: changes the file.
        text: encodes the file.
        kinds: the specifications that can have it.
        entries: whether a sparse tensor has to have an entry, with an index.
        container: the one that can have it, or None for both.
    """

    says: str
    verdict: str = "reject"
    keeps: bool = False
    sent: Callable[[Specification, EmbedsSpec], Specification] = _same
    saved: Callable[[Specification], object] = _build
    records: Callable[[dict[str, bytes]], dict[str, bytes]] = _same
    file: Callable[[bytes], bytes] = _same
    text: Callable[[bytes], bytes] = base64.b64encode
    kinds: tuple[type, ...] = ANY
    entries: bool = False
    container: str | None = None

    def problem(self, payload: Payload) -> str:
        """What `payload` would have to be other than it is, or nothing."""
        tensor, spec = payload.tensor, payload.spec
        if not isinstance(tensor, self.kinds):
            return f"tensor={type(tensor).__name__}(…) to be a {' or '.join(kind.__name__ for kind in self.kinds)}"
        if self.container not in (None, payload.container):
            return f"container={self.container!r}"
        if self.entries and not isinstance(tensor, Dense):
            if "no-entries" in tensor.traits:
                return f"tensor={tensor!r} to have an entry"
            if self.kinds != ANY and "no-sparse-dims" in tensor.traits:
                return f"tensor={tensor!r} to have a sparse dimension"
        if self.sent is _more_rows_than_fit and spec.max_bytes is None:
            return f"spec={spec!r} to have max_bytes"
        if self.sent is _overflow and spec.dtype is torch.float64:
            return f"spec={spec!r} to have another dtype, which some number overflows"
        return ""


def _plain(tensor: Any, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Dense:
    """A contiguous tensor of this shape, of the same data."""
    return Dense(dtype or tensor.dtype, shape, tensor.data)


def _one_column_more(tensor: Specification, spec: EmbedsSpec) -> Specification:
    *front, hidden = tensor.shape
    if isinstance(tensor, Dense):
        return _plain(tensor, (*front, hidden + 1))
    step = 1 if isinstance(tensor, Coo) or tensor.dense_dim else tensor.block[1]
    return replace(tensor, shape=(*front, hidden + step))


def _of_shape(shape: Callable[[int, int], tuple[int, ...]]) -> Any:
    return lambda tensor, spec: _plain(tensor, shape(tensor.shape[-2], spec.hidden_size))


def _filled(tensor: Specification, dtype: torch.dtype, element: float | str) -> Specification:
    if isinstance(tensor, Dense):
        return Dense(dtype, tensor.shape, [element], tensor.strides, tensor.offset, tensor.size)
    return replace(tensor, dtype=dtype, data=[element])


def _of_dtype(dtype: torch.dtype) -> Any:
    return lambda tensor, spec: _filled(tensor, dtype, 1)


def _infinite(tensor: Specification, spec: EmbedsSpec) -> Specification:
    has_infinity = tensor.dtype.itemsize > 1 or tensor.dtype is torch.float8_e5m2
    return _filled(tensor, tensor.dtype if has_infinity else torch.float32, "inf")


def _overflow(tensor: Specification, spec: EmbedsSpec) -> Specification:
    return _filled(tensor, torch.float64, 1e300)


def _more_rows_than_fit(tensor: Any, spec: EmbedsSpec) -> Dense:
    """One row for all of them: what little is sent says that it is large."""
    assert spec.max_bytes is not None
    rows = spec.max_bytes // spec.nbytes(1) + 1
    return Dense(tensor.dtype, (rows, spec.hidden_size), tensor.data, strides=(0, 1))


def _subclass(tensor: Any, spec: EmbedsSpec) -> Dense:
    found: Dense = replace(tensor, cls=Subclass)
    return found


def _numbers(tensor: Specification) -> object:
    return tensor.dense().to(torch.float64).tolist()


def _on_meta(tensor: Specification) -> object:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")


def _by_foreign_global(tensor: Specification) -> object:
    """A call of a function that does no harm: whoever lets it happen gets a good tensor."""
    return Reduced(copy.copy, (tensor.build(),))


def _reduced(tensor: Any) -> tuple[Any, tuple[Any, ...]]:
    """The function that torch saves a tensor as a call of, and its arguments."""
    function, parts = tensor.__reduce_ex__(2)
    return function, parts


def _storage_too_short(tensor: Specification) -> object:
    function, (storage, offset, shape, *rest) = _reduced(tensor.dense())
    return Reduced(function, (storage, offset, (*shape[:-2], shape[-2] + 1, shape[-1]), *rest))


def _with_parts(change: Callable[[Any], tuple[Any, ...]]) -> Callable[[Specification], object]:
    """Save a sparse tensor of other indices than torch would make one of. Nothing builds it but who loads it."""

    def saved(tensor: Specification) -> object:
        function, (layout, parts) = _reduced(tensor.build())
        return Reduced(function, (layout, change(parts)))

    return saved


def _plain_index(index: int) -> Callable[[Any], tuple[Any, ...]]:
    """Parts with another last index: the one before the values, in all layouts."""

    def change(parts: Any) -> tuple[Any, ...]:
        place = 1 if len(parts) == 4 and isinstance(parts[2], Tensor) else 0
        changed = parts[place].clone()
        changed[..., -1] = index
        return (*parts[:place], changed, *parts[place + 1 :])

    return change


def _falsely_coalesced(parts: Any) -> tuple[Any, ...]:
    plain, values, shape, _ = parts
    return torch.cat([plain] * 2, dim=1), torch.cat([values] * 2), shape, True


def _pointers_past_the_end(parts: Any) -> tuple[Any, ...]:
    compressed, plain, *rest = parts
    changed = compressed.clone()
    changed[..., -1] = plain.shape[-1] + 3
    return (changed, plain, *rest)


def _pointers_fall(parts: Any) -> tuple[Any, ...]:
    compressed, plain, *rest = parts
    changed = compressed.clone()
    changed[..., 1] = plain.shape[-1] + 1
    return (changed, plain, *rest)


def _without_storages(records: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in records.items() if not name.startswith("data/")}


def _of_other_byteorder(records: dict[str, bytes]) -> dict[str, bytes]:
    return {**records, "byteorder": b"little" if records.get("byteorder") == b"big" else b"big"}


def _with_foreign_character(data: bytes) -> bytes:
    text = base64.b64encode(data)
    return text[:1] + b"*" + text[2:]


def _half_of_the_text(data: bytes) -> bytes:
    text = base64.b64encode(data)
    return text[: len(text) // 2]


_NUMPY = (
    b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1), }".ljust(127) + b"\n\0\0\0\0"
)
NOTHING = Break("nothing is wrong", "accept", keeps=True)

BREAKS: dict[str, Break] = {
    "empty": Break("nothing is sent", text=lambda data: b""),
    "not-base64": Break("a character is none of base64", text=_with_foreign_character),
    "half-of-the-text": Break("the text is cut in the middle", text=_half_of_the_text),
    "truncated": Break("the file is cut in the middle", file=lambda data: data[: len(data) // 2]),
    "not-a-torch-file": Break("the file is a text", file=lambda data: b"prompt embeddings\n"),
    "numpy-file": Break("the file is one of numpy", file=lambda data: _NUMPY),
    "storage-missing": Break("the elements are missing", records=_without_storages, container="zip"),
    "storage-too-short": Break("the storage is a row too short", saved=_storage_too_short, kinds=(Dense,)),
    "foreign-global": Break("loading it calls a function that is not torch's", saved=_by_foreign_global),
    "subclass": Break("its class is not torch's", sent=_subclass, kinds=(Dense,)),
    "none": Break("None was saved", saved=lambda tensor: None),
    "list-of-numbers": Break("lists of numbers were saved", saved=_numbers),
    "dict-of-tensors": Break("a dict was saved", saved=lambda tensor: {"prompt_embeds": tensor.build()}),
    "list-of-tensors": Break("a list was saved", saved=lambda tensor: [tensor.build()]),
    "meta": Break("the tensor has no elements", saved=_on_meta),
    "rank-0": Break("it is a single number", sent=_of_shape(lambda rows, hidden: ()), kinds=(Dense,)),
    "rank-1": Break("it has one dimension", sent=_of_shape(lambda rows, hidden: (hidden,)), kinds=(Dense,)),
    "rank-3-batch-of-two": Break(
        "it is a batch of two", sent=_of_shape(lambda rows, hidden: (2, rows, hidden)), kinds=(Dense,)
    ),
    "rank-4": Break(
        "it has four dimensions", sent=_of_shape(lambda rows, hidden: (1, 1, rows, hidden)), kinds=(Dense,)
    ),
    "wrong-hidden-size": Break("the rows are too long", sent=_one_column_more),
    "zero-rows": Break("it has no rows", sent=_of_shape(lambda rows, hidden: (0, hidden)), kinds=(Dense,)),
    "larger-than-max-bytes": Break("it has more rows than fit", sent=_more_rows_than_fit, kinds=(Dense,)),
    "integer": Break("its elements are integers", sent=_of_dtype(torch.int64)),
    "uint8": Break("its elements are bytes", sent=_of_dtype(torch.uint8)),
    "bool": Break("its elements are bools", sent=_of_dtype(torch.bool)),
    "complex": Break("its elements are complex", sent=_of_dtype(torch.complex64)),
    "nan": Break("its elements are NaN", sent=lambda tensor, spec: _filled(tensor, tensor.dtype, "nan"), entries=True),
    "inf": Break("its elements are infinite", sent=_infinite, entries=True),
    "overflow": Break("its elements are too large for the model's dtype", sent=_overflow, entries=True),
    "index-out-of-range": Break(
        "an index is out of range", saved=_with_parts(_plain_index(1 << 20)), kinds=SPARSE, entries=True
    ),
    "negative-index": Break("an index is negative", saved=_with_parts(_plain_index(-1)), kinds=SPARSE, entries=True),
    "falsely-coalesced": Break(
        "it says that no entry occurs twice", saved=_with_parts(_falsely_coalesced), kinds=(Coo,), entries=True
    ),
    "bad-pointers": Break(
        "the last pointer is past the end", saved=_with_parts(_pointers_past_the_end), kinds=(Compressed,)
    ),
    "falling-pointers": Break("the pointers fall", saved=_with_parts(_pointers_fall), kinds=(Compressed,)),
    "white-space": Break("there are line breaks in the base64", "either", keeps=True, text=base64.encodebytes),
    "url-alphabet": Break("the base64 is that of URLs", "either", keeps=True, text=base64.urlsafe_b64encode),
    "trailing-bytes": Break("bytes follow the file", "either", keeps=True, file=lambda data: data + bytes(100)),
    "wrong-checksum": Break(
        "a checksum is wrong", "either", keeps=True, file=containers.with_wrong_checksum, container="zip"
    ),
    "wrong-byteorder": Break(
        "the file says the other byte order", "either", records=_of_other_byteorder, container="zip"
    ),
}
"""What can be wrong with a payload: one thing each. What some servers may accept comes last."""
