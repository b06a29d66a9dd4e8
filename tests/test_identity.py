import subprocess
import sys
import warnings
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from pytest_tensorizer import identity
from pytest_tensorizer.identity import (
    FACETS,
    Difference,
    assert_identical,
    differences,
    identical,
    tie_groups,
)

QUANTIZED = {torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4}
DTYPES = sorted({value for value in vars(torch).values() if isinstance(value, torch.dtype)} - QUANTIZED, key=str)
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def from_bytes(dtype, *shape, seed=0):
    """Arbitrary bytes, NaNs and other odd patterns included, as a tensor of any dtype."""
    generator = torch.Generator().manual_seed(seed)
    count = torch.Size(shape).numel() * dtype.itemsize
    raw = torch.randint(0, 256, (count,), dtype=torch.uint8, generator=generator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.empty(0, dtype=dtype).set_(raw.untyped_storage(), 0, shape)


def flipped(tensor, *index, bit=0):
    """A copy, in which one bit of one element is another."""
    raw = from_bytes(tensor.dtype, *tensor.shape)
    as_bytes = torch.empty(0, dtype=torch.uint8)
    source = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    as_bytes.set_(raw.untyped_storage()).copy_(source)
    position = 0
    for i, stride in zip(index, raw.stride(), strict=True):
        position += i * stride
    as_bytes[position * tensor.itemsize + bit // 8] ^= 1 << bit % 8
    return raw


def facets_of(actual, expected, **options):
    return {difference.facet for difference in differences(actual, expected, **options)}


def only(actual, expected, **options):
    (difference,) = differences(actual, expected, **options)
    return difference


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
class TestEveryDtype:
    def test_equal_bytes_are_identical(self, dtype):
        assert identical(from_bytes(dtype, 3, 5), from_bytes(dtype, 3, 5))
        assert identical(from_bytes(dtype), from_bytes(dtype))
        assert identical(from_bytes(dtype, 0, 4), from_bytes(dtype, 0, 4))

    def test_every_bit_counts(self, dtype):
        expected = from_bytes(dtype, 3, 5)
        for bit in range(8 * dtype.itemsize):
            difference = only(flipped(expected, 2, 1, bit=bit), expected, name="w")
            assert difference.facet == "bits"
            assert difference.message.startswith("'w' differs in 1 of 15 elements, first at [2, 1]: expected ")

    def test_strided_tensors_are_compared_by_elements(self, dtype):
        whole, other = from_bytes(dtype, 6, 8), flipped(from_bytes(dtype, 6, 8), 2, 5)
        reversed_order = from_bytes(dtype, 8, 6).t()
        assert identical(whole[:, 1:3], from_bytes(dtype, 6, 8)[:, 1:3])
        assert identical(whole[:, :4], other[:, :4])
        assert identical(reversed_order, from_bytes(dtype, 8, 6).t())
        assert "first at [2, 1]" in only(other[1:, 1::2].t(), whole[1:, 1::2].t()).message
        assert "first at [5, 2]" in only(other.t(), whole.t()).message

    @pytest.mark.parametrize("rest", [0, 3])
    def test_large_tensors_are_compared_by_words(self, dtype, rest, monkeypatch):
        monkeypatch.setattr(identity, "_PARALLEL", 256)
        size = 1024 // dtype.itemsize + rest
        expected = from_bytes(dtype, size)
        assert identical(from_bytes(dtype, size), expected)
        for position in (0, size - 4, size - 1):
            assert f"first at [{position}]" in only(flipped(expected, position), expected).message
        assert identical(from_bytes(dtype, size)[3:], expected[3:])
        assert not identical(flipped(expected, size - 1)[3:], expected[3:])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_nan_payloads_and_signed_zeros(dtype):
    integer = INTEGERS[dtype.itemsize]
    quiet = torch.tensor([float("nan")], dtype=dtype)
    payload = (quiet.view(integer) + 1).view(dtype)
    assert identical(quiet, quiet.clone())
    assert not identical(payload, quiet)
    assert "expected nan (" in only(payload, quiet).message
    assert "largest" not in only(payload, quiet).message
    zero = torch.zeros(1, dtype=dtype)
    assert "expected 0.0 (0x00" in only(-zero, zero).message
    assert "got -0.0 (0x80" in only(-zero, zero).message


@pytest.mark.parametrize("dtype", [torch.complex32, torch.complex64, torch.complex128], ids=str)
def test_conjugated_and_negated_views_are_resolved(dtype):
    values = torch.arange(12).reshape(3, 4)
    lazy = torch.complex(values.double(), values.double() + 1).to(dtype).conj()
    solid = lazy.resolve_conj()
    assert lazy.is_conj()
    assert not solid.is_conj()
    assert identical(lazy, solid)
    assert identical(lazy.t(), solid.t().contiguous())
    assert not identical(lazy, lazy.conj())
    assert lazy.imag.is_neg()
    assert identical(lazy.imag, lazy.imag.resolve_neg())
    assert not identical(lazy.imag, lazy.conj().imag)
    assert not identical(lazy.conj(), lazy)
    corner = lazy[:1, :1].imag
    assert corner.is_neg()
    assert corner.is_contiguous()
    assert identical(corner, corner.resolve_neg())
    assert not identical(corner, lazy.conj()[:1, :1].imag)


def test_the_message_of_differing_bits():
    expected = torch.full((128, 128), 0.0137, dtype=torch.bfloat16)
    actual = expected.clone()
    actual[48:56] = 0
    actual[127, 127] = -0.5
    assert only(actual, expected, name="layers.1.weight") == Difference(
        "layers.1.weight",
        "bits",
        "'layers.1.weight' differs in 1,025 of 16,384 elements, first at [48, 0]: "
        "expected 0.013672 (0x3c60), got 0.0 (0x0000); largest difference 0.513672",
    )
    assert str(only(actual, expected)).startswith("the tensor differs in")


@pytest.mark.parametrize(
    ("actual", "expected", "ending"),
    [
        (torch.tensor(2.5), torch.tensor(1.0), "elements: expected 1.0 (0x3f800000), got 2.5 (0x40200000);"),
        (torch.tensor([1.0, 9]), torch.tensor([float("nan"), 2]), "largest difference 7.0"),
        (torch.tensor([1.0]), torch.tensor([float("inf")]), "largest difference inf"),
        (torch.tensor([True]), torch.tensor([False]), "expected False (0x00), got True (0x01)"),
        (torch.tensor([-1]), torch.tensor([2**63 - 1]), f"got -1 (0x{'f' * 16}); largest difference {2**63}"),
        (torch.tensor([-(2**63)]), torch.tensor([2**63 - 1]), f"largest difference {2**64 - 1}"),
        (torch.tensor([-(2**63), 1]), torch.tensor([2**63 - 1, 0]), f"largest difference {2**64 - 1}"),
        (torch.tensor([2**62 + 1]), torch.tensor([2**62]), "largest difference 1"),
        (torch.tensor([-1]).to(torch.uint64), torch.tensor([5]).to(torch.uint64), f"difference {2**64 - 6}"),
        (torch.tensor([255]).byte(), torch.tensor([0]).byte(), "got 255 (0xff); largest difference 255"),
        (torch.tensor([-3]).char(), torch.tensor([2]).char(), "got -3 (0xfd); largest difference 5"),
        (torch.tensor([3 + 4j]), torch.tensor([0j]), "got (3+4j) (0x40400000, 0x40800000); largest d"),
        (torch.tensor([0.1]), torch.tensor([0.3]), "expected 0.300000012 (0x3e99999a), got 0.1"),
    ],
)  # fmt: skip
def test_values_patterns_and_distances(actual, expected, ending):
    assert ending in only(actual, expected).message


def test_dtypes_that_torch_only_stores_show_their_bits():
    expected = from_bytes(torch.int4, 4)
    message = only(flipped(expected, 1), expected).message
    byte = int(expected.view(torch.uint8)[1])
    assert message.endswith(f"first at [1]: expected 0x{byte:02x}, got 0x{byte ^ 1:02x}")


def test_statistics_across_blocks():
    expected = torch.zeros(1500, 1000)
    actual = expected.clone()
    actual[700, 3], actual[700, 2], actual[1499, 999] = 1, 2, -8
    assert "3 of 1,500,000 elements, first at [700, 2]: expected 0.0" in only(actual, expected).message
    assert "largest difference 8.0" in only(actual, expected).message
    assert "first at [2, 700]" in only(actual.t(), expected.t()).message
    long = torch.zeros(4, 40_000)
    other = long.clone()
    other[3, 1], other[1, 39_000] = 1, 1
    assert "first at [1, 39000]" in only(other, long).message
    wide = torch.zeros(2, 3, 700_000)
    other = wide.clone()
    other[1, 2, 600_001] = 1
    assert "1 of 4,200,000 elements, first at [1, 2, 600001]" in only(other, wide).message
    assert "first at [1, 600001, 2]" in only(other.transpose(1, 2), wide.transpose(1, 2).contiguous()).message


def test_expanded_tensors_are_not_materialized():
    huge = (10**9, 3, 10**6)
    actual, expected = torch.ones(3, 1), torch.ones(3, 1)
    assert identical(actual.expand(huge), expected.expand(huge))
    actual[1] = 2
    message = only(actual.expand(huge), expected.expand(huge)).message
    assert "differs in 1,000,000,000,000,000 of 3,000,000,000,000,000 elements, first at [0, 1, 0]" in message
    assert identical(torch.ones(1).expand(4, 5), torch.ones(4, 5))
    assert not identical(torch.zeros(1).expand(4, 5), torch.ones(4, 5))


def test_unaligned_memory(monkeypatch):
    monkeypatch.setattr(identity, "_PARALLEL", 256)
    storage = torch.arange(1 << 10, dtype=torch.int64).view(torch.uint8)
    actual = storage[1:4097]
    assert identical(actual, actual.clone())
    other = actual.clone()
    other[-1] ^= 1
    assert not identical(other, actual)


def test_a_relabelled_tensor_differs_in_dtype_alone():
    expected = from_bytes(torch.float8_e4m3fn, 4)
    assert facets_of(expected.view(torch.float8_e5m2), expected) == {"dtype"}
    assert facets_of(expected.view(torch.float8_e5m2), expected, facets={"bits"}) == set()
    assert facets_of(flipped(expected, 1).view(torch.int8), expected) == {"dtype", "bits"}
    assert only(torch.ones(2), torch.ones(2).double(), name="w").message == (
        "'w' has dtype torch.float32, expected torch.float64"
    )


def test_a_shape_is_one_facet():
    difference = only(torch.ones(2, 3), torch.ones(3, 2), name="w")
    assert (difference.facet, difference.message) == ("shape", "'w' has shape (2, 3), expected (3, 2)")
    assert facets_of(torch.ones(1), torch.tensor(1.0)) == {"shape"}
    assert facets_of(torch.ones(0, 3), torch.ones(3, 0)) == {"shape"}


@pytest.mark.parametrize(
    "actual",
    [torch.ones(3), torch.ones(2).double(), torch.ones(2).to_sparse(), torch.ones(2, device="meta")],
)  # fmt: skip
def test_a_restriction_never_hides_that_bits_were_not_compared(actual):
    assert facets_of(actual, torch.ones(2), facets={"bits"}) == {"bits"}
    assert facets_of({}, {"w": torch.ones(2)}, facets={"bits"}) == {"bits"}
    assert facets_of({"w": None}, {"w": torch.ones(2)}, facets=["requires_grad"]) == {"requires_grad"}


def test_facets_restrict():
    actual, expected = {"a": torch.ones(2)}, {"a": torch.zeros(3), "b": torch.ones(1)}
    assert facets_of(actual, expected) == {"shape", "missing"}
    assert facets_of(actual, expected, facets={"shape", "missing"}) == {"shape", "missing"}
    assert facets_of(actual, expected, facets=FACETS - {"shape", "bits"}) == {"missing"}
    assert facets_of(actual, expected, facets={"text"}) == set()


@pytest.mark.parametrize("facets", [[], ["bit"], "bit"])
def test_unknown_facets_are_refused(facets):
    with pytest.raises(ValueError, match=r"choose one or more of .*'bits'"):
        differences(torch.ones(1), torch.ones(1), facets=facets)


LAYOUTS = {
    "coo": lambda t: t.to_sparse(),
    "csr": lambda t: t.to_sparse_csr(),
    "csc": lambda t: t.to_sparse_csc(),
    "bsr": lambda t: t.to_sparse_bsr((2, 2)),
    "bsc": lambda t: t.to_sparse_bsc((2, 2)),
}


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_sparse_layouts(layout):
    make, dense = LAYOUTS[layout], torch.tensor([[0.0, 1, 0, 0], [2, float("nan"), 0, 0]])
    expected = make(dense)
    assert identical(make(dense), expected)
    changed = dense.clone()
    changed[1, 0] = 3
    difference = only(make(changed), expected, name="w")
    assert difference.facet == "bits"
    assert "values of 'w' differs in 1 of " in difference.message
    moved = dense.roll(2, 1)
    assert "indices of 'w' differs" in str([d.message for d in differences(make(moved), expected, name="w")])
    assert facets_of(dense, expected) == {"layout"}
    assert facets_of(make(torch.ones(2, 4)), expected) == {"bits"}
    assert facets_of(make(dense.double()), expected) == {"dtype"}
    assert facets_of(make(torch.eye(2).int()), make(torch.eye(2))) == {"dtype", "bits"}
    assert identical(make(torch.zeros(0, 4)), make(torch.zeros(0, 4)))


@pytest.mark.filterwarnings("ignore:Sparse")
def test_coo_tensors_are_compared_as_stored():
    index, values = torch.tensor([[0, 0, 2]]), torch.tensor([1.0, 2, 3])
    loose = torch.sparse_coo_tensor(index, values, (4,))
    assert identical(loose, torch.sparse_coo_tensor(index, values.clone(), (4,)))
    assert facets_of(loose.coalesce(), loose) == {"layout", "bits"}
    pure = torch.sparse_coo_tensor(index[:, 1:], values[1:], (4,))
    assert only(pure.coalesce(), pure, name="w").message == "'w' is coalesced, but not the expected one"
    relabelled = torch.sparse_coo_tensor(index, values.view(torch.int32), (4,))
    assert facets_of(relabelled, loose) == {"dtype"}
    values.untyped_storage().resize_(0)
    assert "too small" in only(loose, torch.sparse_coo_tensor(index, torch.ones(3), (4,))).message


@pytest.mark.filterwarnings("ignore:.*quantize")
class TestQuantized:
    @pytest.mark.parametrize("dtype", sorted(QUANTIZED, key=str), ids=str)
    def test_per_tensor(self, dtype):
        def make(values, scale=0.5, zero_point=1):
            return torch.quantize_per_tensor(values, scale, zero_point, dtype)

        values = torch.tensor([[0.0, 0.5, 1, 0], [0.5, 0, 1, 1], [0, 0, 0, 0]])
        expected, other = make(values), values.clone()
        other[2, 3] = 1
        assert identical(make(values), expected)
        assert "integers of 'w' differs in 1 of" in only(make(other), expected, name="w").message
        assert "scale of 'w'" in only(make(values * 2, scale=1.0), expected, name="w").message
        assert "zero point of 'w'" in only(make(values + 0.5, zero_point=0), expected, name="w").message
        assert facets_of(expected.dequantize(), expected) == {"dtype", "layout"}
        assert facets_of(expected, make(values.t())) == {"shape"}

    @pytest.mark.parametrize("dtype", [torch.qint8, torch.quint8, torch.qint32], ids=str)
    def test_per_channel(self, dtype):
        def make(scale=1.0, zero=0, axis=0):
            scales, zeros = torch.tensor([1.0, scale]).double(), torch.tensor([0, zero])
            return torch.quantize_per_channel(torch.zeros(2, 2), scales, zeros, axis, dtype)

        assert identical(make(), make())
        assert "scales of 'w'" in only(make(scale=2.0), make(), name="w").message
        assert "channel axis of 'w'" in only(make(axis=1), make(), name="w").message
        assert any("zero points" in d.message for d in differences(make(zero=1), make()))
        whole = torch.quantize_per_tensor(torch.zeros(2, 2), 1.0, 0, dtype)
        assert "per_channel_affine, expected torch.per_tensor_affine" in only(make(), whole).message

    def test_packed_elements_are_read_in_one_order(self):
        packed = torch.quantize_per_tensor(torch.ones(4, 4), 1.0, 0, torch.quint4x2)
        assert identical(packed.t(), packed.t())
        assert "strides of 'w'" in only(packed.t(), packed, name="w").message

    def test_float_parameters_of_packed_channels(self):
        def make(scale):
            return torch.quantize_per_channel(
                torch.zeros(2, 4), torch.tensor([1.0, scale]), torch.zeros(2), 0, torch.quint4x2
            )

        assert identical(make(1.0), make(1.0))
        assert "scales of" in only(make(2.0), make(1.0)).message

    def test_without_a_quantizer(self):
        bare = torch.empty(4, dtype=torch.qint8)
        assert identical(bare, bare)
        assert facets_of(bare, torch.quantize_per_tensor(torch.ones(4), 1.0, 0, torch.qint8)) == {"layout"}

    def test_transposed(self):
        square = torch.quantize_per_tensor(torch.arange(9.0).reshape(3, 3), 1.0, 0, torch.qint8)
        solid = torch.quantize_per_tensor(torch.arange(9.0).reshape(3, 3).t().contiguous(), 1.0, 0, torch.qint8)
        assert identical(square.t(), solid)
        assert not identical(square, solid)


class TestWithoutData:
    def test_meta(self):
        meta = torch.ones(3, device="meta")
        for actual, expected in ((meta, torch.ones(3)), (torch.ones(3), meta), (meta, meta)):
            difference = only(actual, expected, name="w")
            assert difference.facet == "bits"
            assert difference.message.startswith("'w' cannot be compared: no data")
        assert facets_of(meta, meta, facets=FACETS - {"bits"}) == set()
        assert facets_of(meta, torch.ones(4, device="meta")) == {"shape"}
        sparse = torch.ones(2, 2).to_sparse()
        assert "no data" in only(torch.empty_like(sparse, device="meta"), torch.zeros(2, 2).to_sparse()).message

    @pytest.mark.parametrize("left", [0, 8, 399])
    def test_a_freed_or_cut_storage(self, left):
        freed = torch.ones(10, 10)
        transposed, nothing = freed.t(), freed[:0]
        freed.untyped_storage().resize_(left)
        message = only(freed, torch.ones(10, 10), name="w").message
        assert f"'w' cannot be compared: a storage is too small, it holds {left} of 400 bytes" in message
        assert facets_of(torch.ones(10, 10).t(), transposed) == {"bits"}
        assert identical(nothing, torch.ones(0, 10))
        assert tie_groups({"a": freed, "b": freed, "c": torch.ones(1)}) == {frozenset("ab")}

    @pytest.mark.filterwarnings("ignore:.*quantize")
    def test_a_freed_quantized_storage_is_not_grown(self):
        freed = torch.quantize_per_tensor(torch.ones(8), 1.0, 0, torch.qint8)
        freed.untyped_storage().resize_(0)
        assert "too small" in only(freed, torch.quantize_per_tensor(torch.ones(8), 1.0, 0, torch.qint8)).message
        assert freed.untyped_storage().nbytes() == 0

    @pytest.mark.filterwarnings("ignore")  # torch warns that the API of each of these is provisional
    def test_others_that_cannot_be_read(self):
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
        assert "unbind()" in only(nested, nested).message
        lazy = nn.LazyLinear(3)
        assert facets_of(lazy, lazy) == {"bits"}
        assert "uninitialized" in differences(lazy.weight, lazy.weight)[0].message
        from torch._subclasses import FakeTensorMode

        with FakeTensorMode():
            fake = torch.ones(3)
        assert "FakeTensor has no memory" in only(fake, fake).message


def test_parameters_and_views_that_require_grad():
    weight = nn.Parameter(torch.ones(300, 1000))
    assert identical(weight, torch.ones(300, 1000))
    assert identical(weight.t(), torch.ones(1000, 300))
    assert not identical(weight * 2, weight)
    assert weight.grad is None


class TestMappings:
    def test_missing_extra_and_class(self):
        actual = {"b": torch.ones(1), "new": torch.ones(1), "c": [1.0]}
        expected = {"a": torch.ones(1), "b": torch.ones(1), "c": torch.ones(1)}
        assert [(d.name, d.facet, str(d)) for d in differences(actual, expected, name="model")] == [
            ("model.a", "missing", "'model.a' is missing"),
            ("model.c", "class", "'model.c' is a list, expected a tensor"),
            ("model.new", "extra", "'model.new' is not among the expected names"),
        ]

    def test_requires_grad_is_left_out(self):
        assert identical({"a": torch.ones(1, requires_grad=True)}, {"a": torch.ones(1)})

    def test_ties(self):
        one, two = torch.ones(4), torch.ones(4)
        tied, apart = {"a": one, "b": one, "c": two}, {"a": one, "b": two, "c": one.clone()}
        lost = only(apart, tied)
        assert (lost.name, lost.facet) == ("a", "ties")
        assert str(lost) == "'a', 'b' should share memory, but do not all do so"
        assert str(only(tied, apart)) == "'a', 'b' share memory, but should not all do so"
        every = dict.fromkeys("abc", one)
        assert len(differences(tied, every)) == len(differences(every, tied)) == 1
        assert identical(apart, tied, facets=FACETS - {"ties"})
        assert facets_of({"a": one}, {"a": one, "b": one}) == {"missing"}


class TestTieGroups:
    def test_views_share_and_neighbours_do_not(self):
        whole = torch.arange(12.0)
        left, right = whole[:6], whole[6:]
        assert tie_groups({"left": left, "right": right}) == frozenset()
        assert tie_groups({"whole": whole, "left": left, "right": right, "other": torch.ones(3)}) == {
            frozenset({"whole", "left", "right"})
        }
        assert tie_groups({"a": whole[:8], "b": whole[4:10], "c": whole[9:], "d": torch.ones(1)}) == {frozenset("abc")}
        assert tie_groups({"a": whole.detach(), "b": whole.view(3, 4).t()}) == {frozenset("ab")}

    def test_separate_storages_over_the_same_memory(self):
        numpy = pytest.importorskip("numpy")
        array = numpy.ones(4, dtype=numpy.float32)
        assert tie_groups({"a": torch.from_numpy(array), "b": torch.from_numpy(array)}) == {frozenset("ab")}

    def test_without_bytes(self):
        empty = torch.empty(0)
        assert tie_groups({"a": empty, "b": empty, "c": torch.empty(0)}) == {frozenset("ab")}
        whole = torch.ones(4)
        assert tie_groups({"a": whole[:0], "b": whole[:0], "c": whole}) == frozenset()

    def test_meta_and_sparse(self):
        meta = torch.ones(4, device="meta")
        assert tie_groups({"a": meta, "b": meta.view(2, 2), "c": torch.ones(4, device="meta")}) == {frozenset("ab")}
        values = torch.ones(2)
        sparse = torch.sparse_coo_tensor([[0, 1]], values, (3,))
        assert tie_groups({"sparse": sparse, "values": values, "copy": sparse.clone()}) == {
            frozenset({"sparse", "values"})
        }


class Tied(nn.Module):
    def __init__(self, *, tied=True, kind="buffer", persistent=True):
        super().__init__()
        self.embed = nn.Embedding(4, 2)
        self.head = nn.Linear(2, 4, bias=False)
        with torch.no_grad():
            self.embed.weight.copy_(torch.arange(8.0).reshape(4, 2))
            self.head.weight.copy_(self.embed.weight)
        if tied:
            self.head.weight = self.embed.weight
        if kind == "buffer":
            self.register_buffer("scale", torch.ones(2), persistent=persistent)
        else:
            self.scale = nn.Parameter(torch.ones(2), requires_grad=False)
        self.register_parameter("bias", None)


class TestModules:
    def test_equal_modules(self):
        assert identical(Tied(), Tied())
        assert tie_groups(Tied()) == {frozenset({"embed.weight", "head.weight"})}

    @pytest.mark.parametrize(
        ("actual", "facet", "message"),
        [
            (Tied(tied=False), "ties", "'embed.weight', 'head.weight' should share memory, but do not"),
            (Tied(kind="parameter"), "kind", "'scale' is a parameter, expected a buffer"),
            (Tied(persistent=False), "persistence", "'scale' is not persistent, expected persistent"),
        ],
    )
    def test_each_fact_is_one_facet(self, actual, facet, message):
        difference = only(actual, Tied())
        assert difference.facet == facet
        assert difference.message.startswith(message)
        assert identical(actual, Tied(), facets=FACETS - {facet})
        assert not identical(actual, Tied(), facets={facet})

    def test_requires_grad(self):
        actual = Tied(tied=False)
        actual.head.weight.requires_grad_(False)
        difference = only(actual, Tied(tied=False))
        assert (difference.name, difference.facet) == ("head.weight", "requires_grad")
        assert str(difference) == "'head.weight' has requires_grad=False, expected requires_grad=True"

    def test_buffers_that_are_not_persistent_are_compared(self):
        actual = Tied(persistent=False)
        actual.scale += 1
        assert facets_of(actual, Tied(persistent=False)) == {"bits"}

    def test_a_parameter_under_two_names_is_compared_under_both(self):
        actual = Tied()
        with torch.no_grad():
            actual.embed.weight += 1
        assert [d.name for d in differences(actual, Tied())] == ["embed.weight", "head.weight"]

    def test_a_module_under_two_names(self):
        def make(shared):
            layer = nn.Linear(2, 2)
            nn.init.ones_(layer.weight)
            nn.init.ones_(layer.bias)
            other = layer if shared else nn.Linear(2, 2)
            other.load_state_dict(layer.state_dict())
            return nn.ModuleList([layer, other])

        assert {d.name for d in differences(make(False), make(True))} == {"0.weight", "0.bias"}
        assert facets_of(make(False), make(True)) == {"ties"}

    def test_missing_parameters(self):
        actual, expected = nn.Linear(2, 2, bias=False), nn.Linear(2, 2)
        expected.weight = actual.weight
        assert [(d.name, d.facet) for d in differences(actual, expected)] == [("bias", "missing")]
        assert facets_of(expected, actual) == {"extra"}
        assert facets_of(actual, expected, facets={"persistence"}) == {"persistence"}

    def test_non_persistent_stays_with_its_module(self):
        parent = nn.Module()
        parent.register_buffer("scale", torch.ones(1))
        parent.child = Tied(persistent=False)
        other = nn.Module()
        other.register_buffer("scale", torch.ones(1), persistent=False)
        other.child = Tied(persistent=True)
        found = {d.name: str(d) for d in differences(parent, other) if d.facet == "persistence"}
        assert found["scale"] == "'scale' is persistent, expected not persistent"
        assert found["child.scale"] == "'child.scale' is not persistent, expected persistent"


def generation(token_ids=(1, 2, 3), text="one two", logprobs=(-0.5, -1.5, -0.25)):
    if isinstance(logprobs, tuple):
        logprobs = torch.tensor(logprobs)
    return SimpleNamespace(token_ids=token_ids, text=text, logprobs=logprobs)


class TestGenerations:
    def test_equal(self):
        assert identical([generation(), generation(text="")], (generation([1, 2, 3]), generation(text="")))
        assert identical([], [])
        assert identical([generation(token_ids=torch.tensor([1, 2, 3]))], [generation()])
        assert identical([generation(logprobs=None)], [generation(logprobs=None)])
        assert identical([generation(logprobs=[-0.5, -1.5, -0.25])], [generation()])

    @pytest.mark.parametrize(
        ("change", "facet", "message"),
        [
            ({"token_ids": [1, 9, 3]}, "token_ids", "from position 1: expected [2, 3], got [9, 3]"),
            ({"token_ids": [1, 2]}, "token_ids", "position 2: expected [3], got [] (length 2, expected 3)"),
            ({"token_ids": [1, 2, 3, 4]}, "token_ids", "expected [], got [4] (length 4, expected 3)"),
            ({"token_ids": 7}, "token_ids", "is 7, expected [1, 2, 3]"),
            ({"text": "one twO"}, "text", "differs from position 6: expected 'o', got 'O'"),
            ({"text": None}, "text", "is None, expected 'one two'"),
            ({"logprobs": (-0.5, -1.5, -0.5)}, "logprobs", "differs in 1 of 3 elements, first at [2]: "),
            ({"logprobs": (-0.5, -1.5)}, "logprobs", "has shape (2,), expected (3,)"),
            ({"logprobs": [-0.5, -1.5, -0.25000000001]}, "logprobs", "first at [2]: expected -0.25"),
            ({"logprobs": torch.tensor([-0.5, -1.5, -0.25]).double()}, "logprobs", "has dtype torch.float64"),
            ({"logprobs": None}, "logprobs", "is None, expected tensor("),
            ({"logprobs": ["x"]}, "logprobs", "cannot be read as numbers"),
        ],
    )  # fmt: skip
    def test_each_facet(self, change, facet, message):
        difference = only([generation(), generation(**change)], [generation(), generation()])
        assert (difference.name, difference.facet) == ("prompt 1", facet)
        assert difference.message.startswith(f"prompt 1: {facet} ")
        assert message in difference.message
        assert identical([generation(**change)], [generation()], facets=FACETS - {facet})

    def test_logprobs_are_compared_bitwise(self):
        assert not identical([generation(logprobs=(0.0,))], [generation(logprobs=(-0.0,))])
        assert not identical([generation(logprobs=[0.0])], [generation(logprobs=[-0.0])])
        nan = float("nan")
        assert identical([generation(logprobs=(nan,))], [generation(logprobs=(nan,))])

    def test_numbers_of_generations(self):
        lost = only([generation()], [generation(), generation()], name="vllm")
        assert (lost.facet, str(lost)) == ("missing", "vllm prompt 1 has no generation")
        assert facets_of([], [generation()], facets={"text"}) == {"text"}
        assert only([generation()], []).facet == "extra"
        assert only(["text"], [generation()]).facet == "class"


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (torch.ones(1), {"a": torch.ones(1)}),
        (nn.Linear(1, 1), nn.Linear(1, 1).state_dict()),
        ([torch.ones(1)], [torch.ones(1)]),
        ("a", "a"),
        (1.0, 1.0),
        (None, torch.ones(1)),
        (generation(), generation()),
    ],
)
def test_what_cannot_be_compared_is_refused(actual, expected):
    with pytest.raises(TypeError, match="give two tensors, mappings"):
        differences(actual, expected)


@pytest.mark.parametrize("expected", [{"a": 1}, {3: torch.ones(1)}])
def test_expected_mappings_hold_named_tensors(expected):
    with pytest.raises(TypeError, match=r"a mapping must lead from str to Tensor"):
        differences({}, expected)


def test_assert_identical():
    assert_identical({"a": torch.ones(1)}, {"a": torch.ones(1)})
    with pytest.raises(AssertionError) as caught:
        assert_identical(torch.ones(1), torch.zeros(1), name="w", context="after loading")
    assert str(caught.value) == (
        "after loading: 'w' differs in 1 of 1 elements, first at [0]: "
        "expected 0.0 (0x00000000), got 1.0 (0x3f800000); largest difference 1.0"
    )
    assert caught.traceback[-1].frame.code.name == "assert_identical"
    assert caught.traceback[-1].ishidden(caught)


def test_assert_identical_lists_ten_differences():
    expected = {f"w{i}": torch.ones(1) for i in range(1234)}
    with pytest.raises(AssertionError) as caught:
        assert_identical({}, expected)
    lines = str(caught.value).splitlines()
    assert lines[0] == "'w0' is missing (the first of 1,234 differences)"
    assert lines[1:] == [f"  - 'w{i}' is missing" for i in range(1, 10)] + ["  and 1,224 more"]
    with pytest.raises(AssertionError, match="1,234 differences"):
        assert_identical({}, expected, facets={"bits"})


MEMORY = """
import pathlib, re, torch
from pytest_tensorizer.identity import differences, identical

def peak():  # not ru_maxrss, which begins with that of the parent
    return int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]) / 1024

def grown(actual, expected, equal):
    differences(actual[:9, :9], expected[:9, :9])
    before = peak()
    assert equal == identical(actual, expected)
    return peak() - before

a, c = torch.zeros(4000, 4000), torch.full((2000, 2000), 1j)
print(grown(a.t(), a.clone(), True), grown(a.t(), torch.ones_like(a), False))
solid = c.conj().resolve_conj()
print(grown(c.conj().t(), solid, True), grown(c.conj().t(), c, False))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc, to read the peak of a process's own memory")
def test_large_tensors_are_not_copied():
    """The tensors have 61 and 31 MiB. To compare and to count, a few blocks of a few MiB may be copied."""
    result = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert max(map(float, result.stdout.split())) < 24, result.stdout
