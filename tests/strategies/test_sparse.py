"""Sparse tensors: all kinds are drawn, and the dense value is the right one."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from pytest_tensorizer.strategies import Compressed, Coo, shapes, sparse_tensors
from pytest_tensorizer.strategies.sparse import BLOCKED, COMPRESSED, LAYOUTS, Sparse
from tests.strategies.draws import STEADY, drawn, evaluated, label
from tests.strategies.test_dense import memory


@pytest.fixture(scope="module")
def specs() -> list[Sparse]:
    return drawn(sparse_tensors())


def of(layout: torch.layout | None, specs: list[Sparse]) -> Counter[str]:
    return Counter(trait for spec in specs if layout in (None, spec.layout) for trait in spec.traits)


def test_all_kinds_are_drawn(specs: list[Sparse]) -> None:
    assert len(specs) == 600
    assert {spec.layout for spec in specs} == set(LAYOUTS)
    coo = of(torch.sparse_coo, specs)
    assert {"coalesced", "uncoalesced", "duplicates", "unsorted", "hybrid", "no-sparse-dims", "no-entries"} <= set(coo)
    for layout in COMPRESSED:
        wanted = {"int32-indices", "batched", "hybrid", "no-entries"} | ({"blocks"} if layout in BLOCKED else set())
        assert wanted <= set(of(layout, specs)), layout
    assert len({spec.dtype for spec in specs}) > 35
    filled = [spec for spec in specs if "no-entries" not in spec.traits]
    assert len(filled) > 250
    assert {spec.index_dtype for spec in filled if isinstance(spec, Compressed)} == {torch.int32, torch.int64}
    blocks = {spec.block for spec in filled if isinstance(spec, Compressed)}
    assert any(high > 1 and wide > 1 for high, wide in blocks)
    assert any(high != wide for high, wide in blocks)


def test_entries_may_be_zero(specs: list[Sparse]) -> None:
    zero, mixed = 0, 0
    for spec in specs:
        entries = spec._entries()
        width = spec.dtype.itemsize
        words = [any(entries[start : start + width]) for start in range(0, len(entries), width)]
        zero += bool(words) and not any(words)
        mixed += any(words) and not all(words)
    assert zero > 5
    assert mixed > 2


def test_duplicates_are_of_several_kinds() -> None:
    """Of values that add up to something else than either, adjacent or not, in hybrid tensors too."""
    specs = [s for s in drawn(sparse_tensors(layout=torch.sparse_coo), 700) if "duplicates" in s.traits]
    assert len(specs) > 30
    assert any("hybrid" in spec.traits for spec in specs)
    assert any("unsorted" in spec.traits for spec in specs)
    assert any("no-sparse-dims" in spec.traits for spec in specs)
    assert any(max(Counter(spec.cells).values()) > 2 for spec in specs)
    assert sum(any(memory(spec.dense())) for spec in specs) > 15


def test_the_tensor_is_as_it_was_drawn(specs: list[Sparse]) -> None:
    for spec in specs:
        tensor = spec.build()
        assert (tensor.layout, tensor.dtype, tensor.shape) == (spec.layout, spec.dtype, spec.shape)
        assert tensor.device.type == "cpu"
        if isinstance(spec, Coo):
            assert tensor.is_coalesced() == spec.coalesced
            dims = len(spec.shape) if spec.sparse_dim is None else spec.sparse_dim
            assert (tensor.sparse_dim(), tensor.dense_dim()) == (dims, len(spec.shape) - dims)
            assert [tuple(cell) for cell in tensor._indices().t().tolist()] == list(spec.cells)
            assert memory(tensor._values()) == spec._entries()
        else:
            by_row = spec.layout in (torch.sparse_csr, torch.sparse_bsr)
            lines, plain = (
                (tensor.crow_indices(), tensor.col_indices())
                if by_row
                else (tensor.ccol_indices(), tensor.row_indices())
            )
            assert lines.dtype == plain.dtype == spec.index_dtype
            values = tensor.values()
            batch = len(spec.shape) - 2 - spec.dense_dim
            assert tensor.dense_dim() == spec.dense_dim
            if spec.layout in BLOCKED:
                assert values.shape[batch + 1 : batch + 3] == spec.block
            assert memory(values) == spec._entries()


def test_the_dense_value_is_what_torch_makes_of_it() -> None:
    """Where torch can be trusted: it adds up and converts numbers of these dtypes, and no NaNs."""
    dtypes = (torch.float32, torch.float64, torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool,
              torch.complex64, torch.float16, torch.bfloat16)  # fmt: skip
    traits: Counter[str] = Counter()
    for spec in drawn(sparse_tensors(st.sampled_from(dtypes)), 900):
        dense = spec.dense()
        assert (dense.layout, dense.dtype, dense.shape) == (torch.strided, spec.dtype, spec.shape)
        assert dense.is_contiguous()
        if memory(dense) and _is_plain(spec):
            assert memory(spec.build().to_dense().contiguous()) == memory(dense), spec
            traits.update(spec.traits)
    assert {"duplicates", "unsorted", "hybrid", "no-sparse-dims", "coalesced", "blocks", "batched"} <= set(traits)
    assert {str(layout).removeprefix("torch.") for layout in LAYOUTS} <= set(traits)


def _is_plain(spec: Any) -> bool:
    """Whether torch has only to move numbers that it keeps: to_dense adds each to 0, which makes 0.0 of -0.0."""
    values = spec.build()._values() if isinstance(spec, Coo) else spec.build().values()
    if spec.dtype is torch.bool:
        return set(memory(values)) <= {0, 1}
    if not (spec.dtype.is_floating_point or spec.dtype.is_complex):
        return True
    parts = torch.view_as_real(values.clone()) if spec.dtype.is_complex else values
    return bool(parts.isfinite().all() and not (parts.signbit() & (parts == 0)).any())


@pytest.mark.parametrize(
    ("spec", "dense"),
    [
        (Coo(torch.int8, (3,), ((2,), (0,)), [1, 2]), [2, 0, 1]),
        (Coo(torch.int8, (3,), ((2,), (0,), (2,)), [1, 2, 3]), [2, 0, 4]),
        (Coo(torch.bool, (2,), ((1,), (1,)), [True, True]), [False, True]),
        (Coo(torch.int8, (2, 2), ((1,), (1,)), [1, 2, 3], sparse_dim=1), [[0, 0], [4, 3]]),
        (Coo(torch.int8, (2,), ((), ()), [1, 2, 3, 4], sparse_dim=0), [4, 6]),
        (Coo(torch.int8, (), ((),), [5], coalesced=True), 5),
        (Compressed(torch.sparse_csr, torch.int8, (2, 3), (((1, 0), (0, 2)),), [1, 2]), [[0, 0, 1], [2, 0, 0]]),
        (Compressed(torch.sparse_csc, torch.int8, (2, 3), (((1, 0), (0, 2)),), [1, 2]), [[0, 0, 2], [1, 0, 0]]),
        (Compressed(torch.sparse_bsr, torch.int8, (2, 4), (((0, 1),),), [1, 2, 3, 4], (2, 2)),
         [[0, 0, 1, 2], [0, 0, 3, 4]]),
        (Compressed(torch.sparse_bsc, torch.int8, (2, 4), (((0, 1), (0, 0)),), [1, 2, 3, 4], (2, 2)),
         [[1, 2, 1, 2], [3, 4, 3, 4]]),
        (Compressed(torch.sparse_csr, torch.int8, (2, 1, 2), (((0, 0),), ((0, 1),)), [1, 2]), [[[1, 0]], [[0, 2]]]),
        (Compressed(torch.sparse_csr, torch.int8, (1, 2, 2), (((0, 1),),), [1, 2], dense_dim=1), [[[0, 0], [1, 2]]]),
    ],
    ids=label,
)  # fmt: skip
def test_known_tensors(spec: Sparse, dense: Any) -> None:
    assert spec.dense().tolist() == dense
    assert spec.build().to_dense().tolist() == dense
    assert evaluated(repr(spec)) == spec


def test_special_elements_keep_their_bits() -> None:
    """What torch's own conversion would change is in the dense value as it was drawn."""
    spec = Coo(torch.float32, (3,), ((2,), (0,)), ["0x7f800001", -0.0])
    assert memory(spec.dense()) == bytes.fromhex("00000080000000000100807f")
    words = set()
    for drawn_spec in drawn(sparse_tensors(torch.float32), 300):
        data = memory(drawn_spec.dense())
        words |= {data[start : start + 4] for start in range(0, len(data), 4)}
    assert {b"\x01\x00\x80\x7f", b"\x05\x00\xc0\x7f", b"\x00\x00\x00\x80", b"\x01\x00\x00\x00"} <= words


def test_the_repr_is_code_and_specifications_can_be_pickled(specs: list[Sparse]) -> None:
    for spec in specs:
        again = evaluated(repr(spec))
        assert again == spec, repr(spec)
        assert hash(again) == hash(spec)
        assert repr(again) == repr(spec)
        assert memory(again.dense()) == memory(spec.dense())
    assert pickle.loads(pickle.dumps(specs)) == specs


@pytest.mark.parametrize(
    ("arguments", "holds"),
    [
        ({"dtype": torch.int8}, lambda s: s.dtype == torch.int8),
        ({"dtype": st.sampled_from([torch.int8, torch.bool])}, lambda s: s.dtype in (torch.int8, torch.bool)),
        ({"shape": (2, 3, 4)}, lambda s: s.shape == (2, 3, 4)),
        ({"shape": [4]}, lambda s: s.shape == (4,) and s.layout is torch.sparse_coo),
        ({"shape": st.sampled_from([(2, 4), (3,)])}, lambda s: s.shape in ((2, 4), (3,))),
        ({"shape": shapes(min_dims=2, max_dims=3), "layout": torch.sparse_bsc}, lambda s: len(s.shape) in (2, 3)),
        ({"layout": st.sampled_from(BLOCKED)}, lambda s: s.layout in BLOCKED),
        ({"layout": torch.sparse_coo, "shape": ()}, lambda s: s.shape == ()),
    ],
    ids=label,
)
def test_arguments_are_kept(arguments: dict[str, Any], holds: Any) -> None:
    found: list[Sparse] = []

    @settings(STEADY, suppress_health_check=[], max_examples=100)
    @given(sparse_tensors(**arguments))
    def run(spec: Sparse) -> None:
        spec.build()
        found.append(spec)

    run()
    assert len(found) > 50
    assert all(map(holds, found))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": "int8"}, "dtype='int8' is no dtype"),
        ({"dtype": torch.qint8}, "dtype=torch.qint8 has no sparse tensors"),
        ({"shape": (1, -1)}, r"shape=\(1, -1\) has the side -1"),
        ({"layout": torch.strided}, "layout=torch.strided is not sparse"),
        ({"layout": "coo"}, "layout='coo' is not sparse"),
        ({"layout": torch.sparse_csr, "shape": (3,)}, r"shape=\(3,\) does not go with layout=torch.sparse_csr"),
    ],
    ids=label,
)
def test_wrong_arguments_are_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        sparse_tensors(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": st.just(torch.qint8)}, "dtype=torch.qint8 has no sparse tensors"),
        ({"shape": st.just(3)}, "shape=3 is no shape"),
        ({"layout": st.none()}, "layout=None is not sparse"),
    ],
    ids=label,
)
def test_wrong_values_are_refused_when_they_are_drawn(arguments: dict[str, Any], message: str) -> None:
    strategy = sparse_tensors(**arguments)
    with pytest.raises(InvalidArgument, match=message):
        drawn(strategy, 10)
