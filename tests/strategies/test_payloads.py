"""Payloads: all kinds are drawn, each is as `torch.save` has it, and the verdict is that of the reference loader."""

from __future__ import annotations

import base64
import io
import pickle
import random
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from pytest_tensorizer.prompt_embeds import FLOATING_DTYPES, EmbedsSpec, encode, load_prompt_embeds
from pytest_tensorizer.strategies import Compressed, Coo, Dense, Payload, payloads
from pytest_tensorizer.strategies.payload.breaks import BREAKS
from tests.strategies.draws import STEADY, drawn, evaluated, label
from tests.strategies.test_dense import memory

F32 = torch.float32
ONE = EmbedsSpec(1, F32)
TWO = EmbedsSpec(2, F32)
UNIT = Dense(F32, (1, 1))


@pytest.fixture(scope="module")
def found() -> list[Payload]:
    return drawn(payloads())


def loaded(payload: Payload) -> torch.Tensor | None:
    """What the reference loader returns, or None if it refuses."""
    try:
        return load_prompt_embeds(payload.encoded, payload.spec)
    except ValueError:
        return None


def check(payload: Payload) -> bool:
    """The reference loader does what it has to, and accepts the payload."""
    result = loaded(payload)
    if payload.verdict != "either":
        assert (result is not None) == (payload.verdict == "accept"), payload
    if result is not None and payload.expected is not None:
        wanted = payload.expected
        assert (result.shape, result.dtype) == (wanted.shape, wanted.dtype), payload
        assert memory(result) == memory(wanted), payload
    return result is not None


def test_the_reference_loader_agrees(found: list[Payload]) -> None:
    verdicts: Counter[tuple[str, bool]] = Counter()
    for payload in [*found, *drawn(payloads(verdict="accept"), 150), *drawn(payloads(verdict="reject"), 150)]:
        assert (payload.expected is not None) >= (payload.verdict == "accept")
        assert (payload.expected is None) >= (payload.verdict == "reject")
        verdicts[payload.verdict, check(payload)] += 1
    assert min(verdicts["accept", True], verdicts["reject", False]) > 250
    assert min(verdicts["either", True], verdicts["either", False]) > 20


def test_all_kinds_are_drawn(found: list[Payload]) -> None:
    assert len(found) == 600
    traits = Counter(trait for payload in found for trait in payload.traits)
    assert {f"broken:{name}" for name in BREAKS} <= set(traits)
    wanted = {
        "zip", "legacy", "deflated", "byteorder:big", "byteorder:None", "tag", "tag:mps", "tag:cuda:3", "limit", "cast",
        "strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "batch-of-one", "parameter",
        "requires-grad", "neg", "noncontiguous", "offset", "larger-storage", "coalesced", "uncoalesced", "duplicates",
        "unsorted", "hybrid", "no-sparse-dims", "no-entries", "blocks", "int32-indices", "batched",
    }  # fmt: skip
    good = Counter(trait for payload in found if payload.verdict == "accept" for trait in payload.traits)
    assert wanted - {"deflated"} <= set(good)
    assert "deflated" in traits
    names = [str(dtype).removeprefix("torch.") for dtype in FLOATING_DTYPES]
    assert {f"dtype:{name}" for name in names} | {f"to:{name}" for name in names} <= set(good)
    assert sum(payload.broken is None and payload.verdict == "accept" for payload in found) > 150
    assert 250 < sum(payload.broken is not None for payload in found) < 350
    assert {payload.spec.hidden_size for payload in found} == set(range(1, 9))
    filled = [p.tensor for p in found if p.verdict == "accept" and "no-entries" not in p.traits]
    compressed = [tensor for tensor in filled if isinstance(tensor, Compressed)]
    assert any(min(tensor.block) > 1 for tensor in compressed)
    assert any(tensor.block[0] != tensor.block[1] for tensor in compressed)
    assert {tensor.index_dtype for tensor in compressed} == {torch.int32, torch.int64}
    added = [p for p in found if p.verdict == "accept" and "duplicates" in p.traits]
    assert len(added) > 5
    assert any(any(memory(p.expected)) for p in added if p.expected is not None)


def test_elements_are_rounded_now_and_then() -> None:
    rounded, exact = 0, 0
    for payload in drawn(payloads(verdict="accept"), 200):
        assert payload.expected is not None
        dense = payload.tensor.dense()
        same = torch.equal(payload.expected.to(torch.float64), dense.reshape(dense.shape[-2:]).to(torch.float64))
        rounded, exact = rounded + (not same), exact + same
    assert exact > 2 * rounded > 10


@pytest.mark.parametrize(
    ("payload", "values"),
    [
        (Payload(Dense(F32, (2, 2), [1.0, 2.0, 3.0, 4.0], strides=(1, 2)), TWO), [[1, 3], [2, 4]]),
        (Payload(Dense(F32, (1, 1, 2), [1.0, 2.0, 3.0], strides=(0, 0, 1), offset=1, neg=True), TWO), [[-2, -3]]),
        (Payload(Coo(F32, (2, 2), ((1, 0), (0, 1), (1, 0)), [1.0, 2.0, 4.0]), TWO), [[0, 2], [5, 0]]),
        (Payload(Coo(F32, (2, 2), ((1,), (1,)), [1.0, 2.0, 3.0, 4.0], sparse_dim=1), TWO), [[0, 0], [4, 6]]),
        (Payload(Coo(F32, (1, 2), ((), ()), [1.0, 2.0], sparse_dim=0), TWO, "legacy"), [[2, 4]]),
        (
            Payload(Compressed(torch.sparse_csc, F32, (1, 2, 2), (((0, 1), (1, 0)),), [1.0, 2.0]), TWO, location="mps"),
            [[0, 2], [1, 0]],
        ),
        (
            Payload(
                Compressed(torch.sparse_bsr, F32, (2, 2), (((0, 0),),), [1.0, 2.0, 3.0], (2, 1), torch.int32),
                TWO,
                byteorder="big",
            ),
            [[1, 0], [2, 0]],
        ),
        (
            Payload(Compressed(torch.sparse_csr, F32, (1, 2, 2), (((0, 1),),), [1.0, 2.0], dense_dim=1), TWO),
            [[0, 0], [1, 2]],
        ),
        (Payload(Dense(F32, (1, 2), [1.0, -2.0], neg=True), EmbedsSpec(2, torch.float16)), [[-1, 2]]),
        (Payload(Dense(F32, (1, 2), [1.0, -2.0], neg=True), EmbedsSpec(2, torch.float8_e5m2)), [[-1, 2]]),
        (Payload(Dense(torch.float64, (1, 1), [0.1]), EmbedsSpec(1, torch.float16)), [[0.0999755859375]]),
        (Payload(Dense(F32, (1, 1), [448.0]), EmbedsSpec(1, torch.float8_e4m3fn)), [[448]]),
        (Payload(Dense(F32, (1, 1), [449.0]), EmbedsSpec(1, torch.float8_e4m3fn)), None),
        (Payload(Dense(torch.float64, (1, 1), [1e300]), ONE), None),
        (Payload(Dense(F32, (2, 1)), EmbedsSpec(1, F32, max_bytes=8)), [[0], [0]]),
        (Payload(Dense(F32, (3, 1)), EmbedsSpec(1, F32, max_bytes=8)), None),
        (Payload(Dense(F32, (1,)), ONE), None),
        (Payload(Dense(torch.int64, (1, 1)), ONE), None),
        (Payload(Dense(F32, (1, 2)), ONE), None),
        (Payload(Dense(F32, (0, 1)), ONE), None),
        (Payload(Coo(F32, (1, 1), ((0, 0), (0, 0)), ["nan", 1.0]), ONE), None),
    ],
    ids=label,
)
def test_known_payloads(payload: Payload, values: Any) -> None:
    """Of tensors that nobody draws, too: the verdict comes from the tensor, and not from how it was drawn."""
    assert payload.verdict == ("reject" if values is None else "accept")
    assert check(payload) == (values is not None)
    if values is not None:
        assert payload.expected is not None
        assert payload.expected.to(torch.float64).tolist() == values


def records(archive: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        found = {name.split("/", 1)[1]: opened.read(name) for name in opened.namelist()}
    return {name: data for name, data in found.items() if not name.startswith(".")}


def test_the_files_are_those_of_torch(found: list[Payload]) -> None:
    seen: Counter[str] = Counter()
    for payload in found:
        if payload.broken or payload.deflated or payload.byteorder != "little":
            continue
        tensor = payload.tensor.build()
        theirs = base64.b64decode(encode(tensor, location=payload.location, legacy=payload.container == "legacy"))
        if payload.container == "zip":
            assert records(payload.data) == records(theirs)
        else:
            # The keys of the storages are addresses there.
            assert payload.data[:90] == theirs[:90]
            if payload.tensor.dtype.itemsize > 1:
                for ours, other in zip(_parts(payload.data), _parts(theirs), strict=True):
                    assert memory(ours) == memory(other)
        seen.update(payload.traits)
    assert {"zip", "legacy", "tag", "strided", "sparse_coo", "sparse_bsc", "parameter", "neg"} <= set(seen)


def _parts(file: bytes) -> list[torch.Tensor]:
    tensor = torch.load(io.BytesIO(file), map_location="cpu", weights_only=True).detach()
    if tensor.layout is torch.strided:
        return [tensor.resolve_neg().contiguous()]
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices().contiguous(), tensor._values()]
    by_row = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
    return [
        *((tensor.crow_indices(), tensor.col_indices()) if by_row else (tensor.ccol_indices(), tensor.row_indices())),
        tensor.values(),
    ]


def test_a_compressed_archive_and_one_of_the_other_byte_order_hold_the_same() -> None:
    tensor = Coo(torch.float64, (2, 2), ((0, 1),), [1.5])
    plain = Payload(tensor, TWO)
    assert records(Payload(tensor, TWO, deflated=True).data) == records(plain.data)
    swapped = records(Payload(tensor, TWO, byteorder="big").data)
    assert swapped["data/0"] == bytes(15) + b"\1"
    assert swapped["data/1"] == bytes(reversed(records(plain.data)["data/1"]))
    assert "byteorder" not in records(Payload(tensor, TWO, byteorder=None).data)


def test_who_calls_foreign_globals_gets_a_good_tensor() -> None:
    """So that a loader that does so is found out: nothing else is wrong with it."""
    payload = Payload(Dense(F32, (1, 2), [1.0, 2.0]), TWO, broken="foreign-global")
    assert torch.load(io.BytesIO(payload.data), weights_only=False).tolist() == [[1.0, 2.0]]
    assert loaded(payload) is None


def test_a_small_payload_says_that_it_is_large() -> None:
    payload = Payload(UNIT, EmbedsSpec(1, F32, max_bytes=1 << 40), broken="larger-than-max-bytes")
    assert payload.verdict == "reject"
    assert len(payload.encoded) < 3000
    assert loaded(payload) is None


def test_the_repr_is_code_and_payloads_can_be_pickled(found: list[Payload]) -> None:
    for payload in found:
        again = evaluated(repr(payload))
        assert again == payload, repr(payload)
        assert hash(again) == hash(payload)
        assert repr(again) == repr(payload)
        assert again.data == payload.data
        assert again.encoded == payload.encoded
        copy = pickle.loads(pickle.dumps(payload))
        assert copy == payload
        assert not set(vars(copy)) & {"data", "expected"}
        assert payload.description.isprintable()
        assert payload.description.endswith(payload.verdict)


def test_the_description_says_what_is_particular() -> None:
    assert Payload(UNIT, ONE).description == "strided float32 tensor of shape (1, 1), zip file: accept"
    odd = Payload(Coo(F32, (1, 1), ((0, 0),)), ONE, location="mps", byteorder=None, broken="negative-index")
    assert odd.description == (
        "sparse_coo float32 tensor of shape (1, 1), zip file, byte order not said, from mps,"
        " but an index is negative: reject"
    )


WIDE = EmbedsSpec(4096, torch.bfloat16)
TIGHT = EmbedsSpec(3, F32, max_bytes=24)


@pytest.mark.parametrize(
    ("arguments", "holds"),
    [
        ({"spec": TWO}, lambda p: p.spec == TWO),
        ({"spec": WIDE, "verdict": "accept"}, lambda p: p.spec == WIDE and p.verdict == "accept"),
        ({"spec": TIGHT, "verdict": "accept"}, lambda p: p.spec == TIGHT and p.verdict == "accept"),
        ({"spec": TIGHT, "verdict": "reject"}, lambda p: p.spec == TIGHT and p.verdict == "reject"),
        ({"spec": EmbedsSpec(1, torch.float64)}, lambda p: p.spec.dtype is torch.float64),
        ({"spec": st.sampled_from([ONE, TIGHT])}, lambda p: p.spec in (ONE, TIGHT)),
        ({"verdict": "accept"}, lambda p: p.verdict == "accept" and p.broken is None),
        ({"verdict": "reject"}, lambda p: p.verdict == "reject" and p.broken),
    ],
    ids=label,
)
def test_arguments_are_kept(arguments: dict[str, Any], holds: Callable[[Payload], Any]) -> None:
    found: list[Payload] = []

    @settings(STEADY, suppress_health_check=[], max_examples=100)
    @given(payloads(**arguments))
    def run(payload: Payload) -> None:
        found.append(payload)

    run()
    assert len(found) == 100  # nothing was drawn in vain
    assert all(map(holds, found))
    for payload in found:
        check(payload)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"verdict": "either"}, "verdict='either' is unknown: give 'accept', 'reject', or None"),
        ({"verdict": True}, "verdict=True is unknown"),
        ({"spec": 4096}, "spec=4096 is no EmbedsSpec"),
        ({"spec": EmbedsSpec(3, F32, max_bytes=11)}, "has no room for one row: give at least max_bytes=12"),
    ],
    ids=label,
)
def test_wrong_arguments_are_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        payloads(**arguments)


@pytest.mark.parametrize("spec", [4096, EmbedsSpec(3, F32, max_bytes=11)], ids=label)
def test_wrong_values_are_refused_when_they_are_drawn(spec: Any) -> None:
    with pytest.raises(InvalidArgument, match="spec="):
        drawn(payloads(st.just(spec)), 10)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"tensor": torch.ones(1, 1)}, TypeError, "is a Tensor: give a Dense, Coo or Compressed"),
        ({"spec": 1}, TypeError, "spec=1 is a int: give an EmbedsSpec"),
        ({"location": 3}, TypeError, "location=3 is a int: give a device tag"),
        ({"location": ""}, ValueError, "location='' is no device tag"),
        ({"container": "tar"}, ValueError, "container='tar' is unknown: give one of zip, legacy"),
        ({"byteorder": "middle"}, ValueError, "byteorder='middle' is unknown"),
        ({"container": "legacy", "deflated": True}, ValueError, "deflated=True does not go with container='legacy'"),
        ({"container": "legacy", "byteorder": "big"}, ValueError, "byteorder='big' does not go with container"),
        ({"broken": "torn"}, ValueError, "broken='torn' is unknown: give one of empty, "),
        ({"broken": "negative-index"}, ValueError, r"broken='negative-index' needs tensor=Dense\(…\) to be a Coo or"),
        ({"broken": "wrong-checksum", "container": "legacy"}, ValueError, "needs container='zip'"),
        ({"broken": "nan", "tensor": Coo(F32, (1, 1))}, ValueError, "needs tensor=.* to have an entry"),
        (
            {"broken": "negative-index", "tensor": Coo(F32, (1, 1), ((),), sparse_dim=0)},
            ValueError,
            "needs tensor=.* to have a sparse dimension",
        ),
        ({"broken": "larger-than-max-bytes"}, ValueError, "needs spec=.* to have max_bytes"),
        ({"broken": "overflow", "spec": EmbedsSpec(1, torch.float64)}, ValueError, "needs spec=.* another dtype"),
    ],
    ids=label,
)
def test_what_makes_no_sense_is_no_payload(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Payload(**{"tensor": UNIT, "spec": ONE, **arguments})


def has(*wanted: str) -> Callable[[Payload], bool]:
    return lambda payload: set(wanted) <= payload.traits


def accepted(*wanted: str) -> Callable[[Payload], bool]:
    return lambda payload: payload.verdict == "accept" and set(wanted) <= payload.traits


def payload_of(tensor: str = "Dense(torch.float32, (1, 1))", model: str = "1, torch.float32", more: str = "") -> str:
    return f"Payload({tensor}, EmbedsSpec({model}){more and ', '}{more})"


# A property, what is found for it, and in how many calls: about twice the most counted over 8 seeds.
TABLE: dict[str, tuple[Callable[[Payload], Any], tuple[str, ...], int]] = {
    "any": (lambda p: True, (payload_of(),), 220),
    "accepted": (accepted(), (payload_of(),), 50),
    "not zero": (
        lambda p: p.expected is not None and any(memory(p.expected)),
        (payload_of("Dense(torch.float32, (1, 1), [1.0])"),), 100,
    ),
    "legacy accepted": (accepted("legacy"), (payload_of(more="container='legacy'"),), 160),
    "broken": (has("broken"), (payload_of(more="broken='empty'"),), 60),
    "rejected": (lambda p: p.verdict == "reject", (payload_of(more="broken='empty'"),), 60),
    "tag": (has("tag"), (payload_of(more="location='cuda:0'"),), 80),
    "big-endian": (has("byteorder:big"), (payload_of(more="byteorder='big'"),), 100),
    "cast": (
        accepted("cast"), (payload_of(model="1, torch.bfloat16"), payload_of("Dense(torch.bfloat16, (1, 1))")), 60,
    ),
    "a limit": (has("limit"), (payload_of(model="1, torch.float32, max_bytes=4"),), 100),
    "parameter": (
        has("parameter", "requires-grad"),
        (payload_of("Dense(torch.float32, (1, 1), requires_grad=True, cls=torch.nn.Parameter)"),), 150,
    ),
    "batch of one": (has("batch-of-one"), (payload_of("Dense(torch.float32, (1, 1, 1))"),), 100),
    "sparse": (
        accepted("sparse_coo"), (payload_of("Coo(torch.float32, (1, 1), (), coalesced=True)"),), 120,
    ),
    "sparse with duplicates": (
        accepted("duplicates"), (payload_of("Coo(torch.float32, (1, 1), ((0, 0), (0, 0)))"),), 350,
    ),
    "int32 indices": (
        accepted("int32-indices"),
        (payload_of("Compressed(torch.sparse_csr, torch.float32, (1, 1), ((),), index_dtype=torch.int32)"),), 180,
    ),
    "blocks with entries": (
        lambda p: isinstance(p.tensor, Compressed) and min(p.tensor.block) > 1 and any(p.tensor.cells),
        (
            payload_of(
                "Compressed(torch.sparse_bsr, torch.float32, (2, 2), (((0, 0),),), block=(2, 2))", "2, torch.float32"
            ),
        ), 450,
    ),
    "negative index": (
        has("broken:negative-index"),
        (payload_of("Coo(torch.float32, (1, 1), ((0, 0),), coalesced=True)", more="broken='negative-index'"),), 1000,
    ),
    "too large": (
        has("broken:larger-than-max-bytes"),
        (payload_of(model="1, torch.float32, max_bytes=4", more="broken='larger-than-max-bytes'"),), 800,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLE)
def test_shrinks(case: str) -> None:
    holds, wanted, limit = TABLE[case]
    calls = 0

    def condition(payload: Payload) -> bool:
        nonlocal calls
        calls += 1
        return bool(holds(payload))

    value = find(payloads(), condition, settings=settings(STEADY, max_examples=2000), random=random.Random(0))
    assert repr(value) in wanted
    assert calls <= limit


def test_a_draw_changes_nothing_for_anybody() -> None:
    """Nor does an import. In a process of its own, where warnings are errors, with Hypothesis's own settings."""
    script = """
import sys
import torch
from hypothesis import given, settings
from pytest_tensorizer.strategies.payloads import payloads
assert not {"pytest", "_pytest"} & set(sys.modules), "imported"
tag, state = torch.serialization.location_tag, torch.get_rng_state()
seen = []
@settings(database=None, derandomize=True)
@given(payloads())
def run(payload):
    payload.encoded, payload.expected, payload.traits
    seen.append(payload.broken)
run()
assert torch.serialization.location_tag is tag
assert torch.equal(torch.get_rng_state(), state)
print(len(seen))
"""
    result = subprocess.run(
        [sys.executable, "-I", "-W", "error", "-c", script], capture_output=True, text=True, timeout=100
    )
    assert (result.stdout, result.stderr) == ("100\n", "")
