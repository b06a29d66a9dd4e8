"""Prompt embeddings as clients send them, good ones and bad ones, with what a server has to make of each."""

from __future__ import annotations

import base64
import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import torch
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument
from torch import Tensor

from pytest_tensorizer.prompt_embeds.spec import FLOATING_DTYPES, EmbedsSpec
from pytest_tensorizer.strategies import arguments, words
from pytest_tensorizer.strategies import payload_containers as containers
from pytest_tensorizer.strategies import strides as lies
from pytest_tensorizer.strategies.arguments import Argument
from pytest_tensorizer.strategies.code import Code
from pytest_tensorizer.strategies.dense import Dense, Subclass, tensor_of
from pytest_tensorizer.strategies.indices import indices
from pytest_tensorizer.strategies.payload_containers import Reduced
from pytest_tensorizer.strategies.sparse import BLOCKED, INDEX_DTYPES, Compressed, Coo

VERDICTS = ("accept", "reject", "either")
CONTAINERS = ("zip", "legacy")
BYTEORDERS = ("little", "big", None)

Specification: TypeAlias = "Dense | Coo | Compressed"
_ANY = (Dense, Coo, Compressed)
_SPARSE = (Coo, Compressed)
_TAKES = {
    "tensor": "a Dense, Coo or Compressed", "spec": "an EmbedsSpec", "deflated": "a bool",
    "location": "a device tag such as 'cuda:3', or None",
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class Payload(Code):
    """The base64 text of a saved tensor, and what becomes of it. The repr is code that makes it again.

    Args:
        tensor: the tensor that the client saves.
        spec: what the server's model asks for.
        container: "zip", or "legacy" for the file that torch wrote before.
        location: the device tag of every storage, such as "cuda:3". None means "cpu".
        deflated: whether the records of the zip archive are compressed. No torch writes that, but torch reads it.
        byteorder: "little" or "big", in which the zip archive is written and says that it is; None does not say so, and
            means "little". Old versions of torch said nothing.
        broken: None, or the one thing that is wrong: a name in `BREAKS`.

    Raises ValueError if these do not go together, and TypeError if one is of the wrong type.
    """

    tensor: Specification
    spec: EmbedsSpec
    container: str = "zip"
    location: str | None = None
    deflated: bool = False
    byteorder: str | None = "little"
    broken: str | None = None

    def __post_init__(self) -> None:
        wanted: dict[str, Any] = {"tensor": _ANY, "spec": EmbedsSpec, "location": (str, type(None)), "deflated": bool}
        for name, types in wanted.items():
            value = getattr(self, name)
            if not isinstance(value, types):
                raise TypeError(f"{name}={value!r} is a {type(value).__name__}: give {_TAKES[name]}")
        if self.container not in CONTAINERS:
            raise ValueError(f"container={self.container!r} is unknown: give one of {', '.join(CONTAINERS)}")
        if self.byteorder not in BYTEORDERS:
            raise ValueError(f"byteorder={self.byteorder!r} is unknown: give one of 'little', 'big', None")
        if self.location == "":
            raise ValueError("location='' is no device tag: give one such as 'cuda:3', or None")
        if self.container == "legacy":
            if self.deflated:
                raise ValueError("deflated=True does not go with container='legacy': only zip archives are compressed")
            if self.byteorder != "little":
                raise ValueError(f"byteorder={self.byteorder!r} does not go with container='legacy': leave it out")
        if self.broken is not None:
            if self.broken not in BREAKS:
                raise ValueError(f"broken={self.broken!r} is unknown: give one of {', '.join(BREAKS)}")
            problem = self._break.problem(self)
            if problem:
                raise ValueError(f"broken={self.broken!r} needs {problem}")

    def __reduce__(self) -> Any:
        # Without what was computed from it.
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    @property
    def _break(self) -> _Break:
        return _NOTHING if self.broken is None else BREAKS[self.broken]

    @cached_property
    def sent(self) -> Specification:
        """The tensor that is saved: `tensor`, or what `broken` makes of it."""
        return self._break.sent(self.tensor, self.spec)

    @cached_property
    def data(self) -> bytes:
        """The file, as of `torch.save`."""
        obj = self._break.saved(self.sent)
        location = self.location or "cpu"
        if self.container == "legacy":
            return self._break.file(containers.legacy_file(obj, location))
        records = self._break.records(containers.zip_records(obj, location, self.byteorder))
        return self._break.file(containers.zip_file(records, deflated=self.deflated))

    @cached_property
    def encoded(self) -> bytes:
        """What the client sends, to hand to the loader together with `spec`."""
        return self._break.text(self.data)

    @cached_property
    def verdict(self) -> str:
        """What the contract of the reference loader says of it: "accept" or "reject", or "either" if it is silent."""
        if _flaw(self.sent, self.spec):
            return "reject"
        if self.broken is not None:
            return self._break.verdict
        # No torch writes compressed records, and a server may well fear what they expand to. Of 8-bit floats torch
        # itself writes a legacy file that it does not read.
        eight_bits = self.sent.dtype.itemsize == 1
        return "either" if self.deflated or (eight_bits and self.container == "legacy") else "accept"

    @cached_property
    def expected(self) -> Tensor | None:
        """What a loader has to return if it accepts the payload: made of what was drawn, without torch's conversions
        of layouts. None if it must not accept it, or nobody can say what it then holds. Do not change it in place.
        """
        if self.verdict == "reject" or not self._break.keeps:
            return None
        return self.sent.dense().reshape(self.sent.shape[-2:]).to(self.spec.dtype)

    @cached_property
    def traits(self) -> frozenset[str]:
        """What is particular about it: "legacy", "tag", "sparse_coo", "dtype:float16", "broken:truncated", … The words
        of `tensor` are those of its specification.
        """
        flags = {
            "tag": self.location is not None, f"tag:{self.location}": self.location is not None,
            "deflated": self.deflated, f"byteorder:{self.byteorder}": self.container == "zip",
            "broken": self.broken is not None, f"broken:{self.broken}": self.broken is not None,
            "strided": isinstance(self.tensor, Dense), "batch-of-one": len(self.tensor.shape) == 3,
            "parameter": isinstance(self.tensor, Dense) and self.tensor.cls is torch.nn.Parameter,
            "cast": self.tensor.dtype != self.spec.dtype, "limit": self.spec.max_bytes is not None,
        }  # fmt: skip
        names = {self.container, f"to:{_short(self.spec.dtype)}"} | {name for name, is_so in flags.items() if is_so}
        return frozenset(names) | self.tensor.traits

    @cached_property
    def description(self) -> str:
        """One line that says what is sent, and to what end."""
        layout = "strided" if isinstance(self.tensor, Dense) else _short(self.tensor.layout)
        parts = [f"{layout} {_short(self.tensor.dtype)} tensor of shape {self.tensor.shape}", f"{self.container} file"]
        parts += ["compressed"] if self.deflated else []
        parts += [f"byte order {self.byteorder or 'not said'}"] if self.byteorder != "little" else []
        parts += [f"from {self.location}"] if self.location else []
        parts += [f"but {self._break.says}"] if self.broken else []
        return f"{', '.join(parts)}: {self.verdict}"

    def __repr__(self) -> str:
        limit = "" if self.spec.max_bytes is None else f", max_bytes={self.spec.max_bytes}"
        parts = [repr(self.tensor), f"EmbedsSpec({self.spec.hidden_size}, {self.spec.dtype}{limit})"]
        for field in fields(self)[2:]:
            value = getattr(self, field.name)
            if value != field.default:
                parts.append(f"{field.name}={value!r}")
        return f"Payload({', '.join(parts)})"


def _short(value: object) -> str:
    return str(value).removeprefix("torch.")


def _flaw(tensor: Specification, spec: EmbedsSpec) -> str:
    """Why a tensor cannot be the embedding that the model asks for, or nothing."""
    shape = tensor.shape
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[0] != 1):
        return "shape"
    if shape[-1] != spec.hidden_size:
        return "hidden size"
    if shape[-2] == 0:
        return "no rows"
    if tensor.dtype not in FLOATING_DTYPES:
        return "dtype"
    if spec.max_bytes is not None and spec.nbytes(shape[-2]) > spec.max_bytes:
        return "too large"
    # Of a sparse one first the entries: their sums are for finite numbers only.
    stored = tensor.elements() if isinstance(tensor, Dense) else tensor.data
    assert isinstance(stored, bytes)
    if not tensor_of(stored, tensor.dtype).to(torch.float64).isfinite().all():
        return "not finite"
    dense = tensor.dense().to(torch.float64)
    if spec.dtype.itemsize > 1:
        overflows = not dense.to(spec.dtype).isfinite().all()
    else:  # some of these have no infinity, and become their largest number
        overflows = bool((dense.abs() > torch.finfo(spec.dtype).max).any())
    return "overflow" if overflows else ""


def _same(value: Any, *_: Any) -> Any:
    return value


def _build(tensor: Specification) -> object:
    return tensor.build()


@dataclass(frozen=True)
class _Break:
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
    kinds: tuple[type, ...] = _ANY
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
            if self.kinds != _ANY and "no-sparse-dims" in tensor.traits:
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
_NOTHING = _Break("nothing is wrong", "accept", keeps=True)

BREAKS: dict[str, _Break] = {
    "empty": _Break("nothing is sent", text=lambda data: b""),
    "not-base64": _Break("a character is none of base64", text=_with_foreign_character),
    "half-of-the-text": _Break("the text is cut in the middle", text=_half_of_the_text),
    "truncated": _Break("the file is cut in the middle", file=lambda data: data[: len(data) // 2]),
    "not-a-torch-file": _Break("the file is a text", file=lambda data: b"prompt embeddings\n"),
    "numpy-file": _Break("the file is one of numpy", file=lambda data: _NUMPY),
    "storage-missing": _Break("the elements are missing", records=_without_storages, container="zip"),
    "storage-too-short": _Break("the storage is a row too short", saved=_storage_too_short, kinds=(Dense,)),
    "foreign-global": _Break("loading it calls a function that is not torch's", saved=_by_foreign_global),
    "subclass": _Break("its class is not torch's", sent=_subclass, kinds=(Dense,)),
    "none": _Break("None was saved", saved=lambda tensor: None),
    "list-of-numbers": _Break("lists of numbers were saved", saved=_numbers),
    "dict-of-tensors": _Break("a dict was saved", saved=lambda tensor: {"prompt_embeds": tensor.build()}),
    "list-of-tensors": _Break("a list was saved", saved=lambda tensor: [tensor.build()]),
    "meta": _Break("the tensor has no elements", saved=_on_meta),
    "rank-0": _Break("it is a single number", sent=_of_shape(lambda rows, hidden: ()), kinds=(Dense,)),
    "rank-1": _Break("it has one dimension", sent=_of_shape(lambda rows, hidden: (hidden,)), kinds=(Dense,)),
    "rank-3-batch-of-two": _Break(
        "it is a batch of two", sent=_of_shape(lambda rows, hidden: (2, rows, hidden)), kinds=(Dense,)
    ),
    "rank-4": _Break(
        "it has four dimensions", sent=_of_shape(lambda rows, hidden: (1, 1, rows, hidden)), kinds=(Dense,)
    ),
    "wrong-hidden-size": _Break("the rows are too long", sent=_one_column_more),
    "zero-rows": _Break("it has no rows", sent=_of_shape(lambda rows, hidden: (0, hidden)), kinds=(Dense,)),
    "larger-than-max-bytes": _Break("it has more rows than fit", sent=_more_rows_than_fit, kinds=(Dense,)),
    "integer": _Break("its elements are integers", sent=_of_dtype(torch.int64)),
    "uint8": _Break("its elements are bytes", sent=_of_dtype(torch.uint8)),
    "bool": _Break("its elements are bools", sent=_of_dtype(torch.bool)),
    "complex": _Break("its elements are complex", sent=_of_dtype(torch.complex64)),
    "nan": _Break("its elements are NaN", sent=lambda tensor, spec: _filled(tensor, tensor.dtype, "nan"), entries=True),
    "inf": _Break("its elements are infinite", sent=_infinite, entries=True),
    "overflow": _Break("its elements are too large for the model's dtype", sent=_overflow, entries=True),
    "index-out-of-range": _Break(
        "an index is out of range", saved=_with_parts(_plain_index(1 << 20)), kinds=_SPARSE, entries=True
    ),
    "negative-index": _Break("an index is negative", saved=_with_parts(_plain_index(-1)), kinds=_SPARSE, entries=True),
    "falsely-coalesced": _Break(
        "it says that no entry occurs twice", saved=_with_parts(_falsely_coalesced), kinds=(Coo,), entries=True
    ),
    "bad-pointers": _Break(
        "the last pointer is past the end", saved=_with_parts(_pointers_past_the_end), kinds=(Compressed,)
    ),
    "falling-pointers": _Break("the pointers fall", saved=_with_parts(_pointers_fall), kinds=(Compressed,)),
    "white-space": _Break("there are line breaks in the base64", "either", keeps=True, text=base64.encodebytes),
    "url-alphabet": _Break("the base64 is that of URLs", "either", keeps=True, text=base64.urlsafe_b64encode),
    "trailing-bytes": _Break("bytes follow the file", "either", keeps=True, file=lambda data: data + bytes(100)),
    "wrong-checksum": _Break(
        "a checksum is wrong", "either", keeps=True, file=containers.with_wrong_checksum, container="zip"
    ),
    "wrong-byteorder": _Break(
        "the file says the other byte order", "either", records=_of_other_byteorder, container="zip"
    ),
}
"""What can be wrong with a payload: one thing each. What some servers may accept comes last."""


# The same choices in the same order whatever the break and the dtypes are, so that nothing else moves when one of them
# gets simpler; and few of them: each costs time. No two are of equal strategies: Hypothesis tries what it drew for one
# in the place of others like it, and would spend most of its examples on that.
_WIDE = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_NARROW = tuple(dtype for dtype in FLOATING_DTYPES if dtype not in _WIDE)
_HIDDEN = st.sampled_from(range(1, 9))
_WANTED_DTYPE = st.sampled_from((*_WIDE, *_NARROW))
_DTYPES = (*_WIDE, *_NARROW, *_WIDE)
_DTYPE = st.sampled_from(_DTYPES)
_IS_BROKEN = st.booleans()
_LIMIT = st.sampled_from((None, None, None, None, 1, 3))  # times the bytes of the result
_ROWS = st.sampled_from((1, 2, 3, 4, 6))
_BYTES = st.binary(max_size=16)
_FILE = st.sampled_from(
    (("zip", "little"),) * 5 + (("legacy", "little"),) * 5 + (("zip", None), ("zip", "big"), ("zip", "big"))
    + (("deflated", "little"), ("deflated", "big"))
)  # fmt: skip
_LOCATION = st.sampled_from((None,) * 8 + ("cuda:0", "cuda", "cuda:3", "mps", "xpu:1", "hpu", "npu:0", "xla:0"))
_LAYOUTS = (
    (torch.strided,) * 6 + (torch.sparse_coo,) * 5
    + (torch.sparse_csr, torch.sparse_bsr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc, torch.sparse_bsc)
)  # fmt: skip
_LAYOUT = st.sampled_from(range(len(_LAYOUTS)))
_NUMBERS = st.sampled_from(range(16))
_KIND = st.sampled_from(range(3 * len(lies.KINDS)))
_VARIANT = st.sampled_from(range(lies.VARIANTS))
_SAVED_AS = st.sampled_from(("tensor",) * 4 + ("neg",) * 4 + ("requires-grad", "parameter", "frozen"))
_SPARSE_DIMS = st.sampled_from(range(12))
_ORDER = st.sampled_from(("coalesced", "sorted", "drawn", "drawn"))
_BLOCK = st.sampled_from(range(32))
_INDEX_DTYPE = st.sampled_from(INDEX_DTYPES)
_CELLS = 8
_TIMES = 3
_PLACES = 512


def payloads(
    spec: EmbedsSpec | st.SearchStrategy[EmbedsSpec] | None = None, *, verdict: str | None = None
) -> st.SearchStrategy[Payload]:
    """Prompt embeddings as a client may send them, with what a server has to make of each.

    Hand `payload.encoded` and `payload.spec` to the loader: it has to return `payload.expected`, or to refuse, as
    `payload.verdict` says ("either" leaves it to the loader, but what it returns has to be what is expected, if that is
    known). Nothing of it comes from a loader: it is made of what was drawn.

    About half of them are good: strided tensors (transposed, expanded, with an offset, …), Parameters, sparse COO
    tensors (with duplicates, unsorted, hybrid), CSR, CSC, BSR and BSC ones; of all floating-point dtypes; in both
    containers of `torch.save`, in both byte orders, saved on any device. The others have one thing wrong: see `BREAKS`.

    Args:
        spec: what the model asks for, or a strategy of it. None means anything small.
        verdict: "accept" or "reject" for payloads of that verdict only.

    Raises:
        InvalidArgument: an argument makes no sense, or `spec.max_bytes` has no room for a single row.
    """
    if verdict not in (None, "accept", "reject"):
        raise InvalidArgument(f"verdict={verdict!r} is unknown: give 'accept', 'reject', or None for any")
    return _payloads(Argument(spec, _spec), verdict)


def _spec(value: Any) -> EmbedsSpec:
    spec: EmbedsSpec = arguments.one_of_type("spec", EmbedsSpec)(value)
    if spec.max_bytes is not None and spec.nbytes(1) > spec.max_bytes:
        raise InvalidArgument(f"spec={spec!r} has no room for one row: give at least max_bytes={spec.nbytes(1)}")
    return spec


@lru_cache
def _breaks(verdict: str | None) -> st.SearchStrategy[str]:
    return st.sampled_from([name for name, each in BREAKS.items() if verdict in (None, each.verdict)])


@st.composite
def _payloads(draw: st.DrawFn, wanted: Argument, verdict: str | None) -> Payload:
    given = wanted.draw(draw)
    spec = EmbedsSpec(draw(_HIDDEN), draw(_WANTED_DTYPE)) if given is None else given
    broken = None
    if verdict != "accept":
        # Both choices even where one is in vain, so that the others keep their places.
        is_broken, name = verdict == "reject" or draw(_IS_BROKEN), draw(_breaks(verdict))
        broken = _possible(name, spec, own=given is None) if is_broken else None
    flaw = _NOTHING if broken is None else BREAKS[broken]
    file, byteorder = draw(_FILE)
    if flaw.container == "zip" and file == "legacy":
        file = "zip"
    if verdict == "accept" and file == "deflated":
        file = "zip"
    location = draw(_LOCATION)
    layouts = _layouts_of(flaw.kinds)
    layout = layouts[draw(_LAYOUT) % len(layouts)]
    dtype = draw(_DTYPE)
    if verdict == "accept" and file == "legacy":
        dtype = _WIDE[_DTYPES.index(dtype) % len(_WIDE)]
    rows = draw(_ROWS)
    if given is None:
        limit = draw(_LIMIT)
        if broken == "larger-than-max-bytes" and limit is None:
            limit = 1
        if limit is not None:
            spec = replace(spec, max_bytes=limit * spec.nbytes(rows))
    elif spec.max_bytes is not None:
        rows = min(rows, spec.max_bytes // spec.nbytes(1))
    choice = draw(_NUMBERS)
    batch, rounded = choice % 4 == 3, choice >= 12  # the elements are numbers that only some dtypes have
    shape = (1, rows, spec.hidden_size) if batch else (rows, spec.hidden_size)
    tensor: Specification
    if layout is torch.strided:
        tensor = _dense(draw, dtype, shape, rounded)
    elif layout is torch.sparse_coo:
        tensor = _coo(draw, dtype, shape, rounded, flaw)
    else:
        tensor = _compressed(draw, layout, dtype, shape, rounded, flaw)
    container = "legacy" if file == "legacy" else "zip"
    return Payload(tensor, spec, container, location, file == "deflated", byteorder, broken)


def _possible(broken: str, spec: EmbedsSpec, own: bool) -> str:
    """Another break where `spec` cannot have this one."""
    if broken == "larger-than-max-bytes" and spec.max_bytes is None and not own:
        return "wrong-hidden-size"
    return "inf" if broken == "overflow" and spec.dtype is torch.float64 else broken


@lru_cache
def _layouts_of(kinds: tuple[type, ...]) -> tuple[torch.layout, ...]:
    return tuple(
        layout
        for layout in _LAYOUTS
        if (Dense if layout is torch.strided else Coo if layout is torch.sparse_coo else Compressed) in kinds
    )


def _dense(draw: st.DrawFn, dtype: torch.dtype, shape: tuple[int, ...], rounded: bool) -> Dense:
    kinds = lies.possible(shape)
    kind = kinds[draw(_KIND) % len(kinds)]
    strides, offset, size = None, 0, None
    if kind != "contiguous":
        variant = draw(_VARIANT) if kind in lies.VARIED else 0
        strides, offset, size = lies.lie(shape, kind, variant)
    saved_as = draw(_SAVED_AS)
    return Dense(
        dtype, shape, _data(draw, _elements(dtype, rounded)), strides, offset, size,
        neg=saved_as == "neg" and dtype in (torch.float32, torch.float64),
        requires_grad=saved_as in ("requires-grad", "parameter"),
        cls=torch.nn.Parameter if saved_as in ("parameter", "frozen") else Tensor,
    )  # fmt: skip


def _coo(draw: st.DrawFn, dtype: torch.dtype, shape: tuple[int, ...], rounded: bool, flaw: _Break) -> Coo:
    # Every second has indices for all dimensions, as everybody has them.
    choice = draw(_SPARSE_DIMS)
    sparse_dim = len(shape) if choice < 6 else choice % len(shape)
    if flaw.kinds != _ANY:
        sparse_dim = max(sparse_dim, 1)
    places = draw(_places(math.prod(shape[:sparse_dim]), flaw.entries))
    order = draw(_ORDER)
    if order == "coalesced":
        places = sorted(set(places))
    elif order == "sorted":
        places = sorted(places)
    places = [place for number, place in enumerate(places) if places[:number].count(place) < _TIMES]
    cells = tuple(_cell(place, shape[:sparse_dim]) for place in places)
    adds = len(set(places)) < len(places)
    data = _data(draw, _addable(dtype) if adds else _elements(dtype, rounded, sparse=True))
    return Coo(
        dtype, shape, cells, data, None if sparse_dim == len(shape) else sparse_dim, coalesced=order == "coalesced"
    )


def _compressed(
    draw: st.DrawFn, layout: torch.layout, dtype: torch.dtype, shape: tuple[int, ...], rounded: bool, flaw: _Break
) -> Compressed:
    choice = draw(_BLOCK)
    # Three dimensions are a batch of one matrix, or one row of vectors.
    dense_dim = int(len(shape) == 3 and choice >= 24)
    sides = shape[:2] if dense_dim else shape[-2:]
    block = (1, 1)
    if layout in BLOCKED:
        high, wide = (_divisors(side) for side in sides)
        block = high[choice % len(high)], wide[choice // 4 % len(wide)]
    columns = sides[1] // block[1]
    places = sorted(set(draw(_places(sides[0] // block[0] * columns, flaw.entries))))
    cells = tuple(divmod(place, columns) for place in places)
    data = _data(draw, _elements(dtype, rounded, sparse=True))
    return Compressed(layout, dtype, shape, (cells,), data, block, draw(_INDEX_DTYPE), dense_dim)


@lru_cache(1024)
def _places(room: int, entries: bool) -> st.SearchStrategy[list[int]]:
    """Places for entries among `room`, not always all different."""
    found = indices(min(room, _PLACES), min_size=int(entries), max_size=_CELLS)
    if room <= _PLACES:
        return found
    return found.map(lambda places: [place * (room - 1) // (_PLACES - 1) for place in places])


def _cell(place: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    cell: tuple[int, ...] = ()
    for side in reversed(shape):
        place, index = divmod(place, side)
        cell = (index, *cell)
    return cell


@lru_cache
def _divisors(side: int) -> tuple[int, ...]:
    """The sides up to 8 that a block can have, the smallest first."""
    return tuple(number for number in range(1, min(side, 8) + 1) if side % number == 0)


def _data(draw: st.DrawFn, choice: tuple[bytes, ...]) -> bytes:
    return b"".join([choice[byte % len(choice)] for byte in draw(_BYTES)])


_ROUNDED = (0.1, -0.3, 1 / 3, 3.14159265358979, -2.71828182845905, 0.0012345, 1.0625, 1e-7)


@lru_cache
def _elements(dtype: torch.dtype, rounded: bool, sparse: bool = False) -> tuple[bytes, ...]:
    """Words of numbers that every dtype has; and some that it has not, where `rounded`.

    Sparse tensors have no -0.0: whoever adds an entry to the zero that is there before gets 0.0, and may do so.
    """
    found = words.readable(dtype)
    if sparse:
        found = tuple(word for word in found if not any(word) or words.elements(dtype, word) != [0.0])
    return found + tuple(_nearest(dtype, number) for number in _ROUNDED) if rounded else found


@lru_cache
def _addable(dtype: torch.dtype) -> tuple[bytes, ...]:
    """Words of numbers that can be added up three times without rounding, in every dtype."""
    return tuple(words.word(dtype, number) for number in (0.0, 1.0, 2.0, -1.0, -2.0))


def _nearest(dtype: torch.dtype, number: float) -> bytes:
    return bytes(torch.tensor([number], dtype=dtype, device="cpu").view(torch.uint8).tolist())
