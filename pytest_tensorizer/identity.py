"""When are two tensors, state dicts, modules or lists of generations the same?

"The same" means the same bits: a NaN equals only a NaN with the same payload, and 0.0 is not -0.0, which is
not what `torch.equal` says. How a tensor lies in memory does not matter: strided, expanded, conjugated and
negated views are compared by the elements that a reader sees. Around the bits stand facts that a loader can
get wrong on their own (dtype, shape, kind, requires_grad, ...). Each is a *facet*, reported by itself.

A restriction to some facets never turns a comparison that could not be made into a success: where another
shape, or a missing tensor, rules the bits out and only "bits" was asked for, that is a "bits" difference.

Nothing here copies a large tensor: what must be copied to be compared is copied block by block.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

__all__ = ["FACETS", "Difference", "assert_identical", "differences", "identical", "tie_groups"]

_TENSOR_FACETS = ("bits", "dtype", "shape", "layout", "kind", "requires_grad", "persistence", "ties")
_GENERATION_FACETS = ("token_ids", "text", "logprobs")
FACETS = frozenset((*_TENSOR_FACETS, *_GENERATION_FACETS, "missing", "extra", "class"))
"""All facets. Compare all but one with `facets=FACETS - {"ties"}`."""

_SHOWN = 10  # differences, or tied names, that one message lists
_BLOCK = 1 << 14  # elements copied at once. More wake torch's threads, which thrash where CPUs are shared
_DEVICE_BLOCK = 1 << 20  # the same on an accelerator, where each copy and each answer has to be waited for
_PARALLEL = 1 << 26  # bytes from which waking them pays: then torch is faster than memcmp

_COMPRESSED_ROWS = ("crow_indices", "col_indices", "values")
_COMPRESSED_COLUMNS = ("ccol_indices", "row_indices", "values")
_SPARSE_PARTS = {
    torch.sparse_coo: ("_indices", "_values"),  # indices() and values() refuse uncoalesced tensors
    torch.sparse_csr: _COMPRESSED_ROWS,
    torch.sparse_bsr: _COMPRESSED_ROWS,
    torch.sparse_csc: _COMPRESSED_COLUMNS,
    torch.sparse_bsc: _COMPRESSED_COLUMNS,
}
_PACKED_BITS = {torch.quint4x2: 4, torch.quint2x4: 2}  # several elements of the shape lie in one byte
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_DIGITS = {1: 4, 2: 5, 4: 9, 8: 17}  # enough to tell any two floats of that width apart

_memcmp = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)  # ctypes lets other threads run


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs: the name of the tensor or prompt, the facet, and a sentence that names it."""

    name: str
    facet: str
    message: str

    def __str__(self) -> str:
        return self.message


def differences(actual: Any, expected: Any, *, name: str = "", facets: Iterable[str] | None = None) -> list[Difference]:
    """Return everything in which `actual` is not `expected`; an empty list if they are identical.

    Both are one of:

    * tensors of any dtype, layout and device. "layout" is also the quantization scheme, and whether a COO
      tensor is coalesced; the bits of sparse and quantized tensors are their components as stored. A tensor
      without data (meta, uninitialized, of a freed storage) differs in "bits" from all, its like included.
    * mappings of name to tensor: missing and extra names, every tensor, and which names share memory.
      requires_grad is left out, because `state_dict()` detaches.
    * modules: every parameter and buffer under each of its names, persistent or not, with its kind,
      requires_grad and persistence (is it part of the state dict?), and the ties.
    * sequences of generations: objects with `token_ids` (ints), `text` (str) and `logprobs` (a float tensor,
      a list of floats, or None). A list has no dtype: against a tensor it is compared as float64.

    `name` stands before the names in the result. `facets` restricts the comparison to some of `FACETS`.
    Raises TypeError for other or mixed types, and ValueError for unknown or no facets.
    """
    report = _Report(facets)
    if isinstance(actual, Tensor) and isinstance(expected, Tensor):
        _compare_tensors(report, name, repr(name) if name else "the tensor", actual, expected)
    elif isinstance(actual, nn.Module) and isinstance(expected, nn.Module):
        _compare_named(report, name, _module_entries(actual), _module_entries(expected))
    elif isinstance(actual, Mapping) and isinstance(expected, Mapping):
        for key, value in expected.items():
            if not isinstance(key, str) or not isinstance(value, Tensor):
                raise TypeError(
                    f"expected[{key!r}] is of type {type(value).__name__}, but a mapping must lead from str "
                    "to Tensor: take such entries out and compare them yourself"
                )
        _compare_named(report, name, _mapping_entries(actual), _mapping_entries(expected))
    elif _is_sequence(actual) and _is_sequence(expected) and all(map(_is_generation, expected)):
        _compare_generations(report, name, actual, expected)
    else:
        raise TypeError(
            f"cannot compare a {type(actual).__name__} with an expected {type(expected).__name__}: give two "
            "tensors, mappings of name to tensor, modules, or sequences of generations. For a module and a "
            "state dict, give module.state_dict(); for lists of tensors, give dicts that name them"
        )
    return report.found


def identical(actual: Any, expected: Any, *, facets: Iterable[str] | None = None) -> bool:
    """Whether `differences` finds nothing. Raises what it raises."""
    return not differences(actual, expected, facets=facets)


def assert_identical(
    actual: Any, expected: Any, *, name: str = "", facets: Iterable[str] | None = None, context: str = ""
) -> None:
    """Raise AssertionError with up to ten differences after `context`, unless `differences` finds nothing."""
    __tracebackhide__ = True
    if found := differences(actual, expected, name=name, facets=facets):
        # The first line is all that a summary shows, so it has the first difference and not just their number.
        first = str(found[0]) if len(found) == 1 else f"{found[0]} (the first of {len(found):,} differences)"
        lines = [f"{context}: {first}" if context else first, *(f"  - {d}" for d in found[1:_SHOWN])]
        if len(found) > _SHOWN:
            lines.append(f"  and {len(found) - _SHOWN:,} more")
        raise AssertionError("\n".join(lines))


def tie_groups(tensors: Mapping[str, Tensor] | nn.Module) -> frozenset[frozenset[str]]:
    """Return the groups of two or more names whose tensors share memory; of a module, among all its names.

    To share means that the byte ranges overlap. Neighbours that a loader cut from one large storage are not
    tied: writing to one leaves the other alone. Tensors without any bytes are tied if they are one object.
    """
    if isinstance(tensors, nn.Module):
        tensors = {name: tensor for name, (tensor, _) in _module_entries(tensors).items()}
    groups = {name: {name} for name in tensors}
    space, end, owner = "", 0, ""
    # Sorted, a span overlaps an earlier one exactly if it starts before the furthest end so far.
    for its_space, start, stop, name in sorted((*s, name) for name, t in tensors.items() for s in _spans(t)):
        if its_space != space or start >= end:
            space, end, owner = its_space, stop, name
        else:
            end = max(end, stop)
            groups[owner] |= groups[name]
            for member in groups[owner]:
                groups[member] = groups[owner]
    return frozenset(frozenset(group) for group in groups.values() if len(group) > 1)


class _Report:
    """Collects the differences in the facets that were asked for."""

    def __init__(self, facets: Iterable[str] | None = None) -> None:
        self.facets = FACETS if facets is None else frozenset([facets] if isinstance(facets, str) else facets)
        self.found: list[Difference] = []
        if not self.facets or not self.facets <= FACETS:
            raise ValueError(f"facets={sorted(self.facets)}: choose one or more of {sorted(FACETS)}")

    def add(self, name: str, facet: str, message: str, hides: Sequence[str] = ()) -> None:
        """Add a difference. It `hides` the facets that could not be compared because of it: where its own
        facet was not asked for, but one of those was, it is reported as that one."""
        if reported := next((f for f in (facet, *hides) if f in self.facets), None):
            self.found.append(Difference(name, reported, message))


# Named tensors: name -> (tensor, {facet: what the module says of it}).
_Entries = Mapping[str, tuple[Any, Mapping[str, str]]]


def _module_entries(module: nn.Module) -> _Entries:
    entries = {}
    for prefix, part in module.named_modules(remove_duplicate=False):
        # Persistence has no public accessor, and state_dict() can be overridden.
        transient = part._non_persistent_buffers_set
        for kind, tensors in (("parameter", part._parameters), ("buffer", part._buffers)):
            for name, tensor in tensors.items():
                if tensor is not None:
                    facts = {
                        "kind": f"a {kind}",
                        "requires_grad": f"requires_grad={tensor.requires_grad}",
                        "persistence": "not persistent" if name in transient else "persistent",
                    }
                    entries[f"{prefix}.{name}".lstrip(".")] = (tensor, facts)
    return entries


def _mapping_entries(tensors: Mapping[str, Any]) -> _Entries:
    return {name: (tensor, {}) for name, tensor in tensors.items()}


def _compare_named(report: _Report, prefix: str, actual: _Entries, expected: _Entries) -> None:
    names = {name: f"{prefix}.{name}" if prefix else str(name) for name in (*expected, *actual)}
    shared = []
    for name, full in names.items():
        if name not in actual:
            report.add(full, "missing", f"{full!r} is missing", _TENSOR_FACETS)
        elif name not in expected:
            report.add(full, "extra", f"{full!r} is not among the expected names")
        elif not isinstance(tensor := actual[name][0], Tensor):
            message = f"{full!r} is a {type(tensor).__name__}, expected a tensor"
            report.add(full, "class", message, _TENSOR_FACETS)
        else:
            shared.append(name)
            _compare_tensors(report, full, repr(full), tensor, expected[name][0])
            for facet, fact in expected[name][1].items():
                if (got := actual[name][1][facet]) != fact:
                    verb = "has" if facet == "requires_grad" else "is"
                    report.add(full, facet, f"{full!r} {verb} {got}, expected {fact}")
    if "ties" in report.facets:
        sides = [{name: side[name][0] for name in shared} for side in (actual, expected)]
        found, wanted = map(tie_groups, sides)
        for groups, others, verb in (
            (wanted, found, "should share memory, but do not all do so"),
            (found, wanted, "share memory, but should not all do so"),
        ):
            for group in groups:
                if not any(group <= other for other in others):
                    tied = sorted(names[name] for name in group)
                    more = f" and {len(tied) - _SHOWN:,} more" if len(tied) > _SHOWN else ""
                    report.add(tied[0], "ties", f"{', '.join(map(repr, tied[:_SHOWN]))}{more} {verb}")


def _compare_tensors(report: _Report, name: str, label: str, actual: Tensor, expected: Tensor) -> None:
    if is_lazy(actual) or is_lazy(expected) or actual.is_nested or expected.is_nested:
        reason = "one is uninitialized (run the module once) or nested (compare what unbind() gives)"
        report.add(name, "bits", f"{label} cannot be compared: {reason}", _TENSOR_FACETS)
        return
    comparable = True
    for facet, got, want in (
        ("dtype", actual.dtype, expected.dtype),
        ("shape", actual.shape, expected.shape),
        ("layout", _scheme(actual), _scheme(expected)),
    ):
        if got != want:
            # Elements of one width can be compared: a tensor that was only relabelled differs in dtype alone.
            hides = () if facet == "dtype" and actual.itemsize == expected.itemsize else ("bits",)
            comparable = comparable and not hides
            report.add(name, facet, f"{label} has {facet} {_plainly(got)}, expected {_plainly(want)}", hides)
    if not comparable:
        return
    if actual.layout == torch.sparse_coo and actual.is_coalesced() != expected.is_coalesced():
        state = "is not coalesced, but" if expected.is_coalesced() else "is coalesced, but not"
        report.add(name, "layout", f"{label} {state} the expected one")
    if "bits" not in report.facets:
        return
    if reason := _unreadable(actual) or _unreadable(expected):
        report.add(name, "bits", f"{label} cannot be compared: {reason}")
    elif parts := _parts(actual):
        inner = _Report(FACETS - {"dtype"})
        for part, wanted in _parts(expected).items():
            _compare_tensors(inner, name, f"{part} of {label}", parts[part], wanted)
        for difference in inner.found:
            report.add(name, "bits", difference.message)
    elif not _same_bits(actual, expected):
        report.add(name, "bits", _describe(label, actual, expected))


def _plainly(value: Any) -> Any:
    return tuple(value) if isinstance(value, torch.Size) else value


def _scheme(tensor: Tensor) -> object:
    """Return how a tensor is stored: its layout or its quantization scheme."""
    if not tensor.is_quantized:
        return tensor.layout
    try:
        return tensor.qscheme()
    except RuntimeError:  # torch.empty() gives quantized dtypes no quantizer
        return "no quantizer"


def _unreadable(tensor: Tensor) -> str:
    """Say why the elements cannot be read, before anything reads out of bounds; "" if they can."""
    if tensor.numel() == 0:
        return ""
    if tensor.is_meta:
        return "no data, one is on the meta device (to_empty() gives it memory)"
    if tensor.layout in _SPARSE_PARTS:  # its components are looked at one by one
        return ""
    if tensor.layout != torch.strided:
        return f"{tensor.layout} is opaque (compare the results of to_dense())"
    needed, held = _byte_range(tensor)[1], tensor.untyped_storage().nbytes()
    if needed > held:
        return f"a storage is too small, it holds {held:,} of {needed:,} bytes (was it freed?)"
    return "" if tensor.data_ptr() else f"no data, a {type(tensor).__name__} has no memory of its own"


def _byte_range(tensor: Tensor) -> tuple[int, int]:
    """Return the first byte, and the byte after the last, that a strided tensor occupies in its storage."""
    start, elements = int(tensor.storage_offset()) * tensor.itemsize, tensor.numel()
    if elements and not tensor.is_contiguous():
        strides = zip(tensor.shape, tensor.stride(), strict=True)
        elements = 1 + sum((size - 1) * int(stride) for size, stride in strides)
    return start, start + (elements * _PACKED_BITS.get(tensor.dtype, 8 * tensor.itemsize) + 7) // 8


def _spans(tensor: Tensor) -> list[tuple[str, int, int]]:
    """Return the memory that a tensor occupies, as (address space, start, stop); one without is its own."""
    spans = []
    if not is_lazy(tensor) and not tensor.is_nested:
        for part in _parts(tensor).values() if tensor.layout in _SPARSE_PARTS else [tensor]:
            start, stop = _byte_range(part) if part.layout == torch.strided else (0, 0)
            if start < stop and (storage := part.untyped_storage()).nbytes():
                # A meta storage has no address: it is known by the object that implements it.
                address = storage.data_ptr()
                space = str(part.device) if address else f"storage {storage._cdata}"
                spans.append((space, address + start, address + stop))
    return spans or [(f"object {id(tensor)}", 0, 1)]


def _parts(tensor: Tensor) -> dict[str, Tensor]:
    """Return the components of a sparse or quantized tensor as strided tensors in its memory; else {}."""
    if tensor.layout in _SPARSE_PARTS:
        sparse = tensor.detach()
        return {part.lstrip("_"): getattr(sparse, part)() for part in _SPARSE_PARTS[sparse.layout]}
    if not tensor.is_quantized:
        return {}
    shape, strides = tuple(tensor.shape), tensor.stride()
    parts = {}
    if tensor.dtype in _PACKED_BITS:  # elements without addresses: take the bytes
        parts["strides"] = torch.tensor(strides)
        start, stop = _byte_range(tensor)
        shape, strides = (stop - start,), (1,)
    integers = torch.empty(0, dtype=_INTEGERS[tensor.itemsize], device=tensor.device)  # int_repr() would copy
    parts["integers"] = integers.set_(tensor.untyped_storage(), tensor.storage_offset(), shape, strides)
    scheme = str(_scheme(tensor))
    if "per_tensor" in scheme:
        parts["scale"] = torch.tensor(tensor.q_scale(), dtype=torch.float64)
        parts["zero point"] = torch.tensor(tensor.q_zero_point())
    elif "per_channel" in scheme:
        parts["scales"] = tensor.q_per_channel_scales()
        parts["zero points"] = tensor.q_per_channel_zero_points()
        parts["channel axis"] = torch.tensor(tensor.q_per_channel_axis())
    return parts


def _same_bits(actual: Tensor, expected: Tensor) -> bool:
    """Compare strided tensors of one shape and element width: where they lie, or else block by block."""
    if actual.numel() == 0:
        return True
    if not (_is_plain(actual) and _is_plain(expected)):
        actual, expected = _without_repeats(actual, expected)
        # In the order of memory, two equally transposed tensors are contiguous.
        strides = expected.stride()
        order = sorted(range(expected.dim()), key=lambda dim: -strides[dim])
        actual, expected = actual.permute(order), expected.permute(order)
        if not (_is_plain(actual) and _is_plain(expected)):
            return all(torch.equal(got, want) for _, got, want in _blocks(actual, expected))
    size = actual.numel() * actual.itemsize
    if size >= _PARALLEL and not any(n % 8 for n in (size, *_byte_range(actual), *_byte_range(expected))):
        # torch's loop is much slower for narrower integers, and it refuses to view unaligned bytes as int64.
        return torch.equal(*(t.detach().reshape(-1).view(torch.int64) for t in (actual, expected)))
    return bool(_memcmp(actual.data_ptr(), expected.data_ptr(), size) == 0)


def _is_plain(tensor: Tensor) -> bool:
    """Whether the elements are just the bytes from data_ptr() on, in the CPU's memory."""
    return tensor.is_cpu and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def _without_repeats(actual: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
    """Take a single element along every dimension along which both are expanded."""
    actual, expected = actual.detach(), expected.detach()
    for dim, strides in enumerate(zip(actual.stride(), expected.stride(), strict=True)):
        if strides == (0, 0):
            actual, expected = actual.narrow(dim, 0, 1), expected.narrow(dim, 0, 1)
    return actual, expected


def _blocks(
    actual: Tensor, expected: Tensor, origin: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[int, ...], Tensor, Tensor]]:
    """Cut both into blocks of a few elements, in any order: (index of the first, bits, expected bits).

    Halving the longest dimension makes compact blocks, so that a transposed tensor uses whole cache lines.
    """
    origin = origin or (0,) * actual.dim()
    if actual.numel() > (_BLOCK if actual.is_cpu and expected.is_cpu else _DEVICE_BLOCK):
        size, dim = max((size, dim) for dim, size in enumerate(actual.shape))
        for start, length in ((0, size // 2), (size // 2, size - size // 2)):
            got, want = actual.narrow(dim, start, length), expected.narrow(dim, start, length)
            yield from _blocks(got, want, (*origin[:dim], origin[dim] + start, *origin[dim + 1 :]))
        return
    if actual.device != expected.device:
        actual, expected = actual.cpu(), expected.cpu()
    yield origin, _bits(actual), _bits(expected)


def _bits(tensor: Tensor) -> Tensor:
    """Return the elements as integers of their width; complex128 as two int64 in an extra last dimension."""
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.dtype == torch.complex128:
        return torch.view_as_real(tensor).view(torch.int64).contiguous()
    # First integers, then contiguous: torch cannot copy int4 and its like.
    return tensor.view(_INTEGERS[tensor.itemsize]).contiguous()


def _describe(label: str, actual: Tensor, expected: Tensor) -> str:
    """Say how the bits of two tensors differ. Only here, once they do, is anything counted."""
    total, dtypes = actual.numel(), (actual.dtype, expected.dtype)
    actual, expected = _without_repeats(actual, expected)
    count, first, largest = 0, None, None
    for origin, *bits in _blocks(actual, expected):
        unequal = bits[0] != bits[1]
        if unequal.dim() > actual.dim():
            unequal = unequal.any(-1)
        if not (in_block := int(unequal.count_nonzero())):
            continue
        count += in_block
        got, want = (words.view(d).reshape(unequal.shape) for words, d in zip(bits, dtypes, strict=True))
        inside = torch.unravel_index(unequal.reshape(-1).byte().argmax(), unequal.shape)
        index = [start + int(i) for start, i in zip(origin, inside, strict=True)]
        if first is None or index < first[0]:
            first = index, f"expected {_show(want[inside])}, got {_show(got[inside])}"
        if (distance := _largest_distance(got, want, unequal)) is not None:
            largest = distance if largest is None else max(largest, distance)
    assert first is not None, "_describe() is only for tensors that differ"
    where, values = f", first at {first[0]}" if first[0] else "", first[1]
    count *= total // actual.numel()
    ending = "" if largest is None else f"; largest difference {_rounded(largest, 6)}"
    return f"{label} differs in {count:,} of {total:,} elements{where}: {values}{ending}"


def _largest_distance(actual: Tensor, expected: Tensor, unequal: Tensor) -> float | None:
    """Return max |actual - expected| where `unequal`, NaN aside, exact for integers; None if meaningless."""
    dtype = actual.dtype
    if dtype != expected.dtype or dtype == torch.bool or not _is_numeric(actual):
        return None
    if dtype.is_floating_point or dtype.is_complex:
        wide = torch.complex128 if dtype.is_complex else torch.float64
        distance = (actual.to(wide) - expected.to(wide)).abs()
        largest = float(distance.masked_fill_(distance.isnan() | ~unequal, -1).max())
        return None if largest < 0 else largest
    low = torch.iinfo(torch.int64).min
    if dtype == torch.uint64:  # torch cannot calculate with it; less 2**63 it is an int64 in the same order
        actual, expected = actual.view(torch.int64) ^ low, expected.view(torch.int64) ^ low
    actual, expected = actual.to(torch.int64), expected.to(torch.int64)
    wrapped = torch.maximum(actual, expected) - torch.minimum(actual, expected)  # right modulo 2**64
    return (int((wrapped ^ low).max()) ^ low) % 2**64


def _is_numeric(tensor: Tensor) -> bool:
    """Whether torch can read the elements; some dtypes (int4, bits8, ...) it only stores."""
    try:
        tensor[(0,) * tensor.dim()].item()
    except RuntimeError:
        return False
    return True


def _show(element: Tensor) -> str:
    """Write a 0-d tensor: its value if torch can read it, and its bits (real and imaginary part)."""
    width = element.itemsize // (2 if element.is_complex() else 1)
    words = element.reshape(1).view(_INTEGERS[width]).tolist()
    pattern = ", ".join(f"0x{word % 256**width:0{2 * width}x}" for word in words)
    return f"{_rounded(element.item(), _DIGITS[width])} ({pattern})" if _is_numeric(element) else pattern


def _rounded(value: Any, digits: int) -> str:
    if isinstance(value, complex):
        return str(complex(*(float(f"{part:.{digits}g}") for part in (value.real, value.imag))))
    return str(float(f"{value:.{digits}g}")) if isinstance(value, float) else str(value)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _is_generation(value: Any) -> bool:
    return all(hasattr(value, facet) for facet in _GENERATION_FACETS)


def _compare_generations(report: _Report, prefix: str, actual: Sequence[Any], expected: Sequence[Any]) -> None:
    for index in range(max(len(actual), len(expected))):
        name = f"{prefix} prompt {index}".lstrip()
        if index >= len(actual):
            report.add(name, "missing", f"{name} has no generation", _GENERATION_FACETS)
        elif index >= len(expected):
            report.add(name, "extra", f"{name} has a generation, expected none")
        elif not _is_generation(got := actual[index]):
            message = f"{name} has a {type(got).__name__}, expected {', '.join(_GENERATION_FACETS)}"
            report.add(name, "class", message, _GENERATION_FACETS)
        else:
            for facet in _GENERATION_FACETS:
                compare = _compare_logprobs if facet == "logprobs" else _compare_runs
                if message := compare(getattr(got, facet), getattr(expected[index], facet)):
                    report.add(name, facet, f"{name}: {facet} {message}")


def _compare_runs(actual: Any, expected: Any) -> str:
    """Say where two runs of token ids, or two texts, part; "" if they do not."""
    actual, expected = (run.tolist() if hasattr(run, "tolist") else run for run in (actual, expected))
    actual, expected = (list(run) if _is_sequence(run) else run for run in (actual, expected))
    if actual == expected:
        return ""
    if not (isinstance(actual, (str, list)) and type(actual) is type(expected)):
        return f"is {actual!r}, expected {expected!r}"
    pairs = enumerate(zip(actual, expected, strict=False))
    start = next((i for i, (got, want) in pairs if got != want), min(len(actual), len(expected)))
    there = slice(start, start + _SHOWN)
    lengths = "" if len(actual) == len(expected) else f" (length {len(actual)}, expected {len(expected)})"
    return f"differs from position {start}: expected {expected[there]!r}, got {actual[there]!r}{lengths}"


def _compare_logprobs(actual: Any, expected: Any) -> str:
    if actual is None or expected is None:
        return "" if actual is expected else f"is {actual!r}, expected {expected!r}"
    try:
        got, want = (
            torch.as_tensor(numbers, dtype=None if hasattr(numbers, "dtype") else torch.float64)
            for numbers in (actual, expected)
        )
    except (TypeError, ValueError, RuntimeError) as error:
        return f"cannot be read as numbers ({error})"
    if hasattr(actual, "dtype") != hasattr(expected, "dtype"):
        got, want = got.double(), want.double()
    inner = _Report()
    _compare_tensors(inner, "", "as a tensor", got, want)
    return "; ".join(difference.message for difference in inner.found)
