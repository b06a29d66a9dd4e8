"""The reference loader: what an inference server should make of a stranger's prompt embeddings."""

from __future__ import annotations

import base64
import contextlib
import io
import math
import threading

import torch
from torch import Tensor

from pytest_tensorizer.prompt_embeds.negative import resolve_neg
from pytest_tensorizer.prompt_embeds.rejection import PromptEmbedsRejected, rejection
from pytest_tensorizer.prompt_embeds.sparse import COMPRESSED, fill_from_sparse, use_up_torch_warnings
from pytest_tensorizer.prompt_embeds.spec import FLOATING_DTYPES, EmbedsSpec

_LAYOUTS = (torch.strided, torch.sparse_coo, *COMPRESSED)
_CHUNK = 1 << 20  # elements of an 8-bit float that are widened at a time

# torch.load collects the sparse tensors of every thread in one list and, if the global switch for sparse
# checks is on, validates all of them at the end: without this lock one client's bad payload would fail
# another's good one.
_loading = threading.RLock()


def load_prompt_embeds(payload: bytes | str, spec: EmbedsSpec) -> Tensor:
    """The embedding that `payload` holds, as a model that asks for `spec` can use it.

    Args:
        payload: base64 (standard alphabet, padded, no white space) of what `torch.save` wrote for one tensor,
            in either of its containers, saved on any device. The tensor has the shape `(tokens, hidden_size)`
            or `(1, tokens, hidden_size)`, a dtype of `FLOATING_DTYPES` and any strided, COO, CSR, CSC, BSR or
            BSC layout.

    Returns:
        A plain `torch.Tensor` of shape `(tokens, hidden_size)`: on the CPU, strided, contiguous, in
        `spec.dtype` (cast as `Tensor.to` casts), without grad, neg or conj bit or attributes, in a storage of
        its own that is no larger than it.

    Raises:
        ValueError: the payload is refused, as `PromptEmbedsRejected`: not such a tensor, an invalid sparse
            one, larger than `spec.max_bytes`, or with values that are not finite in `spec.dtype`. Nothing
            stays behind: the next payload is judged on its own.
        TypeError: `payload` is neither bytes nor str.
    """
    raw = _decode(payload)
    try:
        # A default device of the caller's would reach into torch.load and turn sparse tensors into others.
        with torch.no_grad(), torch.device("cpu"):
            return _normalize(_unpickle(raw), spec, len(raw))
    except PromptEmbedsRejected:
        raise
    except Exception as error:
        # The payload is hostile until proven otherwise: whatever it makes torch raise is a verdict on it.
        raise rejection(f"tensor cannot be used ({type(error).__name__}: {error})") from error


def _decode(payload: bytes | str) -> bytes:
    if not isinstance(payload, bytes | str):
        raise TypeError(f"payload is a {type(payload).__name__}: pass the base64 text as bytes or str")
    if not payload:
        raise rejection("payload is empty: send base64 of torch.save(tensor)")
    try:
        return base64.b64decode(payload, validate=True)
    except ValueError as error:
        raise rejection(
            f"payload of {len(payload)} characters is not base64 ({error}): send base64 of torch.save(tensor)"
        ) from error


def _unpickle(raw: bytes) -> object:
    use_up_torch_warnings()
    with _loading:
        if torch.sparse.check_sparse_tensor_invariants.is_enabled():  # type: ignore[no-untyped-call]
            _forget_failed_loads()
        try:
            return torch.load(io.BytesIO(raw), map_location="cpu", weights_only=True, mmap=False)
        except BaseException as error:
            _forget_failed_loads()
            if not isinstance(error, Exception):
                raise
            # What torch says here is long and advises the reader to trust the file: it stays in the cause.
            raise rejection(
                f"payload of {len(raw)} bytes is not what torch.load(weights_only=True) accepts "
                f"({type(error).__name__}): send base64 of torch.save(tensor)"
            ) from error


def _forget_failed_loads() -> None:
    """Drop the sparse tensors that a load which failed half-way has left to be validated by the next one."""
    with contextlib.suppress(Exception):
        torch.load(io.BytesIO(_NOTHING), map_location="cpu", weights_only=True, mmap=False)


def _saved_nothing() -> bytes:
    buffer = io.BytesIO()
    torch.save(None, buffer)
    return buffer.getvalue()


_NOTHING = _saved_nothing()


def _normalize(loaded: object, spec: EmbedsSpec, payload_bytes: int) -> Tensor:
    if type(loaded) not in (Tensor, torch.nn.Parameter):
        raise rejection(f"payload holds a {type(loaded).__name__}: send one plain torch.Tensor")
    assert isinstance(loaded, Tensor)
    # Called on the class: a payload may set attributes, and one called "detach" would be found before the
    # method.
    tensor = Tensor.detach(loaded)
    _check_kind(tensor)
    tokens = _check_shape(tensor, spec)
    out = torch.zeros(tokens, spec.hidden_size, dtype=spec.dtype)
    if tensor.layout == torch.strided:
        _cast_into(out, tensor[0] if tensor.dim() == 3 else tensor)
    else:
        fill_from_sparse(
            out,
            tensor,
            cast=lambda values: _cast_into(torch.empty(values.shape, dtype=spec.dtype), values),
            most_entries=max(payload_bytes, out.numel()),
        )
    return out


def _check_kind(tensor: Tensor) -> None:
    if tensor.is_nested or tensor.layout not in _LAYOUTS:
        raise rejection(f"tensor is nested or has layout {tensor.layout}: send a strided or a sparse one")
    if tensor.device.type != "cpu":
        # map_location does not touch a meta tensor: it has no storage to map, and no values either.
        raise rejection(f"tensor lies on {tensor.device} and has no values here: send one with data")
    if tensor.dtype not in FLOATING_DTYPES:
        raise rejection(f"tensor is {tensor.dtype}: send a floating-point one, such as torch.float32")


def _check_shape(tensor: Tensor, spec: EmbedsSpec) -> int:
    """The number of tokens of `tensor`, whose shape is taken at its word: nothing is allocated here."""
    shape = tuple(tensor.shape)
    wanted = f"(tokens, {spec.hidden_size})"
    if not (len(shape) == 2 or (len(shape) == 3 and shape[0] == 1)):
        raise rejection(f"tensor of shape {shape} is not two-dimensional: send {wanted}")
    tokens, hidden = shape[-2:]
    if hidden != spec.hidden_size:
        raise rejection(f"tensor of shape {shape} has hidden size {hidden}: send {wanted}")
    if tokens == 0:
        raise rejection(f"tensor of shape {shape} has no rows: send at least one token")
    if spec.max_bytes is not None and spec.nbytes(tokens) > spec.max_bytes:
        raise rejection(
            f"tensor of shape {shape} takes {spec.nbytes(tokens)} bytes in {spec.dtype}, more than "
            f"max_bytes={spec.max_bytes}: send fewer tokens"
        )
    return tokens


def _cast_into(out: Tensor, values: Tensor) -> Tensor:
    """Copy `values` into `out`, of the same shape, and return it; refuse values that it cannot hold."""
    values = resolve_neg(values)
    out.copy_(values)
    if out.dtype.itemsize > 1:
        fits = _lies_within(out, float("inf"))
    else:
        # float8_e4m3fn has no infinity: torch saturates to the largest value, which looks like data
        # afterwards.
        fits = _lies_within(values, torch.finfo(out.dtype).max)
    if not fits:
        raise rejection(f"{values.dtype} values are not finite, or overflow {out.dtype}: send values that fit")
    return out


def _lies_within(values: Tensor, most: float) -> bool:
    """Is every value finite, and at most `most` away from zero?

    `aminmax` passes NaN on and needs no temporary tensor, but does not know 8-bit floats.
    """
    chunks = [values] if values.dtype.itemsize > 1 else torch.split(values.reshape(-1), _CHUNK)
    for chunk in chunks:
        if chunk.numel() == 0:
            continue
        bounds = torch.aminmax(chunk if chunk.dtype.itemsize > 1 else chunk.to(torch.float32))
        for bound in (bounds.min.item(), bounds.max.item()):
            if not (math.isfinite(bound) and abs(bound) <= most):
                return False
    return True
