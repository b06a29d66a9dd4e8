"""A payload as data: a tensor, the way in which it is sent, and what a server has to make of it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pytest_tensorizer.prompt_embeds.spec import FLOATING_DTYPES, EmbedsSpec
from pytest_tensorizer.strategies.code import Code
from pytest_tensorizer.strategies.dense import Dense, tensor_of
from pytest_tensorizer.strategies.payload import containers
from pytest_tensorizer.strategies.payload.breaks import ANY, BREAKS, NOTHING, Break, Specification

CONTAINERS = ("zip", "legacy")
BYTEORDERS = ("little", "big", None)
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
        wanted: dict[str, Any] = {"tensor": ANY, "spec": EmbedsSpec, "location": (str, type(None)), "deflated": bool}
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
    def _break(self) -> Break:
        return NOTHING if self.broken is None else BREAKS[self.broken]

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
        if flaw_of(self.sent, self.spec):
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


def flaw_of(tensor: Specification, spec: EmbedsSpec) -> str:
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
