"""What the reference loader promises of every payload that it takes, and of every one that it refuses."""

from __future__ import annotations

import base64
import io
import threading
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_tensorizer.prompt_embeds import (
    FLOATING_DTYPES,
    INVALID,
    LAYOUTS,
    EmbedsSpec,
    PromptEmbedsRejected,
    embeds,
    encode,
    load_prompt_embeds,
    to_layout,
)

SPEC = EmbedsSpec(6, torch.float32)
sparse_checks: Any = torch.sparse.check_sparse_tensor_invariants


def bits(tensor: Tensor) -> bytes:
    return bytes(tensor.contiguous().view(torch.uint8).numpy().tobytes())


def assert_normal(result: Tensor, spec: EmbedsSpec, tokens: int) -> None:
    assert type(result) is Tensor
    assert result.shape == (tokens, spec.hidden_size)
    assert result.dtype is spec.dtype
    assert result.device == torch.device("cpu")
    assert result.layout is torch.strided
    assert result.is_contiguous()
    assert not any((result.requires_grad, result.is_neg(), result.is_conj()))
    assert result.grad_fn is None
    assert result.__dict__ == {}
    assert result.untyped_storage().nbytes() == spec.nbytes(tokens)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("location", [None, "mps", "cuda:3", "xpu"])
@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
def test_layouts_devices_and_containers(layout: str, location: str | None, legacy: bool) -> None:
    payload = encode(to_layout(embeds(SPEC), layout), location=location, legacy=legacy)
    result = load_prompt_embeds(payload, SPEC)
    assert_normal(result, SPEC, 4)
    assert bits(result) == bits(embeds(SPEC))


@pytest.mark.parametrize("wanted", FLOATING_DTYPES, ids=str)
@pytest.mark.parametrize("sent", FLOATING_DTYPES, ids=str)
def test_casts_are_those_of_tensor_to(sent: torch.dtype, wanted: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    tensor = torch.randn(8, 6, generator=generator, dtype=torch.float64).to(sent)
    spec = EmbedsSpec(6, wanted)
    result = load_prompt_embeds(encode(tensor), spec)
    assert_normal(result, spec, 8)
    assert bits(result) == bits(tensor.to(wanted))


BASE = torch.arange(240, dtype=torch.float32).view(10, 24) - 100.5
VIEWS = {
    "contiguous": BASE[:, :6].contiguous(),
    "slice-of-a-large-storage": BASE[3:5, 7:13],
    "transposed": BASE[:6].t(),
    "stepped": BASE[::3, ::4],
    "expanded": BASE[:1, :6].expand(5, 6),
    "expanded-columns": BASE[:, :1].expand(10, 6),
    "leading-one": BASE[None, :, :6],
    "one-row": BASE[:1, :6],
    "leading-one-and-one-row": BASE[None, :1, :6],
    "negated": torch.complex(BASE, BASE).conj().imag[:, :6],
}


@pytest.mark.parametrize("tensor", VIEWS.values(), ids=list(VIEWS))
def test_views(tensor: Tensor) -> None:
    result = load_prompt_embeds(encode(tensor), SPEC)
    expected = tensor.resolve_neg().reshape(-1, 6)
    assert_normal(result, SPEC, len(expected))
    assert bits(result) == bits(expected)


@pytest.mark.parametrize("wanted", FLOATING_DTYPES, ids=str)
@pytest.mark.parametrize("sent", FLOATING_DTYPES, ids=str)
def test_negative_views_of_every_dtype(sent: torch.dtype, wanted: torch.dtype) -> None:
    """torch cannot negate 8-bit floats, and loses the sign of zeros where it casts such a view."""
    plain = torch.tensor([[0.0, 1.5, -2.0], [-1.0, 0.0, 4.0]]).to(sent)
    result = load_prompt_embeds(encode(torch._neg_view(plain)), EmbedsSpec(3, wanted))
    assert bits(result) == bits(plain.to(torch.float32).neg().to(wanted))


def test_the_negated_view_is_one() -> None:
    assert VIEWS["negated"].is_neg()


def test_parameters_grad_and_attributes_do_not_survive() -> None:
    tensor = embeds(SPEC).requires_grad_()
    tensor.detach = "not a method"  # type: ignore[assignment, method-assign]
    tensor.note = "left by the client"  # type: ignore[attr-defined]
    for sent in (torch.nn.Parameter(embeds(SPEC)), embeds(SPEC).requires_grad_(), tensor):
        result = load_prompt_embeds(encode(sent), SPEC)
        assert_normal(result, SPEC, 4)
        assert bits(result) == bits(embeds(SPEC))


def test_text_is_taken_like_bytes_and_left_alone() -> None:
    payload = encode(embeds(SPEC))
    copy = bytes(bytearray(payload))
    assert torch.equal(load_prompt_embeds(payload.decode(), SPEC), load_prompt_embeds(payload, SPEC))
    assert payload == copy


@pytest.mark.parametrize("payload", [None, 7, embeds(SPEC)], ids=["none", "int", "tensor"])
def test_a_payload_that_is_no_text_is_a_mistake_of_the_caller(payload: object) -> None:
    with pytest.raises(TypeError, match="payload is a "):
        load_prompt_embeds(payload, SPEC)  # type: ignore[arg-type]


GOOD = encode(embeds(SPEC))
NOT_PAYLOADS = {
    "empty": b"",
    "empty-text": "",
    "not-base64": b"@@@@",
    "not-ascii": "\u00e4bcd",
    "cut-padding": b"QUJ",
    "line-break": GOOD[:76] + b"\n" + GOOD[76:],
    "leading-space": b" " + GOOD,
    "url-alphabet": b"-_-_",
    "text-in-base64": base64.b64encode(b"hello world"),
    "cut-archive": base64.b64encode(base64.b64decode(GOOD)[:-200]),
    "cut-legacy": base64.b64encode(base64.b64decode(encode(embeds(SPEC), legacy=True))[:-8]),
    "calls-something": encode(torch.nn.Linear(1, 1)),
}


@pytest.mark.parametrize("payload", NOT_PAYLOADS.values(), ids=list(NOT_PAYLOADS))
def test_what_is_no_archive_is_refused(payload: bytes | str) -> None:
    with pytest.raises(PromptEmbedsRejected, match="base64") as caught:
        load_prompt_embeds(payload, SPEC)
    assert len(str(caught.value)) < 200
    assert str(caught.value).isprintable()
    if payload:
        assert caught.value.__cause__ is not None


@pytest.mark.parametrize("layout", LAYOUTS)
def test_max_bytes_is_the_size_of_the_result(layout: str) -> None:
    payload = encode(to_layout(embeds(SPEC, dtype=torch.float64), layout))
    fits = EmbedsSpec(6, torch.float16, max_bytes=4 * 6 * 2)
    assert_normal(load_prompt_embeds(payload, fits), fits, 4)
    with pytest.raises(ValueError, match=r"takes 48 bytes in torch.float16, more than max_bytes=47"):
        load_prompt_embeds(payload, EmbedsSpec(6, torch.float16, max_bytes=47))


@pytest.mark.parametrize("tokens", [1 << 20, 1 << 50])
def test_sizes_that_are_only_declared_are_refused_before_allocation(tokens: int) -> None:
    spec = EmbedsSpec(6, torch.float32, max_bytes=1 << 20)
    where = torch.zeros(2, 1, dtype=torch.int64)
    for sent in (
        torch.sparse_coo_tensor(where, torch.ones(1), (tokens, 6)),
        torch.ones(1, 6).expand(tokens, 6),
    ):
        with pytest.raises(ValueError, match=f"takes {tokens * 24} bytes"):
            load_prompt_embeds(encode(sent), spec)


@pytest.mark.parametrize("layout", ["dense", "coo", "csr"])
@pytest.mark.parametrize(
    ("value", "sent", "wanted"),
    [
        (float("nan"), torch.float32, torch.float32),
        (float("inf"), torch.float32, torch.float32),
        (float("-inf"), torch.float16, torch.float64),
        (1e6, torch.float32, torch.float16),
        (-1e300, torch.float64, torch.float32),
        (3.4e38, torch.float32, torch.float16),
        (500.0, torch.float32, torch.float8_e4m3fn),  # torch makes 448 of it
        (1e6, torch.float32, torch.float8_e5m2),
        (float("nan"), torch.float8_e5m2, torch.float32),
        (float("nan"), torch.float8_e4m3fn, torch.float8_e4m3fn),
    ],
    ids=str,
)
def test_values_that_do_not_fit_are_refused(layout: str, value: float, sent: torch.dtype, wanted: torch.dtype) -> None:
    dense = embeds(SPEC, dtype=sent)
    dense[1, 2] = value
    with pytest.raises(ValueError, match=f"not finite, or overflow {wanted}"):
        load_prompt_embeds(encode(to_layout(dense, layout)), EmbedsSpec(6, wanted))


@pytest.mark.parametrize("wanted", FLOATING_DTYPES, ids=str)
def test_the_largest_value_of_a_dtype_fits(wanted: torch.dtype) -> None:
    most = torch.finfo(wanted).max
    sent = torch.full((1, 6), most, dtype=torch.float64)
    sent[0, 0] = -most
    assert torch.equal(load_prompt_embeds(encode(sent), EmbedsSpec(6, wanted)).to(torch.float64), sent)


def test_a_refused_payload_leaves_nothing_behind() -> None:
    """With the switch on, torch validates what an earlier load left when it failed half-way."""
    bad = encode([INVALID["coo-negative-index"](SPEC), torch.nn.Linear(1, 1)])
    raw = base64.b64decode(bad)
    with sparse_checks():
        for _ in range(2):
            with pytest.raises(ValueError, match="prompt_embeds"):
                load_prompt_embeds(bad, SPEC)
            assert torch.load(io.BytesIO(base64.b64decode(encode(None))), weights_only=True) is None
            # And what another caller of torch.load left does not count against the next client.
            with pytest.raises(Exception, match="Weights only load failed"):
                torch.load(io.BytesIO(raw), weights_only=True)
            assert torch.equal(load_prompt_embeds(GOOD, SPEC), embeds(SPEC))


def test_the_result_shares_no_memory_with_anything() -> None:
    result = load_prompt_embeds(GOOD, SPEC)
    again = load_prompt_embeds(GOOD, SPEC)
    result.zero_()
    assert torch.equal(again, embeds(SPEC))


def test_a_default_device_does_not_lead_astray() -> None:
    payloads = [encode(to_layout(embeds(SPEC), layout)) for layout in LAYOUTS]
    with torch.device("meta"):
        results = [load_prompt_embeds(payload, SPEC) for payload in payloads]
    assert all(bits(result) == bits(embeds(SPEC)) for result in results)


@pytest.mark.parametrize("switch", [False, True])
def test_many_threads_at_once(switch: bool) -> None:
    good = [encode(to_layout(embeds(SPEC, seed=seed), LAYOUTS[seed]), location="mps") for seed in range(6)]
    names = ("coo-negative-index", "csr-bad-pointers", "none", "integer")
    bad = [encode(INVALID[name](SPEC)) for name in names]
    wrong: list[str] = []

    def client(number: int) -> None:
        for turn in range(12):
            seed = (number + turn) % len(good)
            try:
                if not torch.equal(load_prompt_embeds(good[seed], SPEC), embeds(SPEC, seed=seed)):
                    wrong.append(f"seed {seed} came back changed")
            except ValueError as error:
                wrong.append(f"seed {seed}: {error}")
            try:
                load_prompt_embeds(bad[(number + turn) % len(bad)], SPEC)
                wrong.append("a bad payload was accepted")
            except ValueError:
                pass

    with sparse_checks(enable=switch):
        threads = [threading.Thread(target=client, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
