"""The sample tensors: every dtype, the layout that the name says, and the bits that give a bad copy away."""

from __future__ import annotations

import pytest
import torch

from pytest_tensorizer import samples
from pytest_tensorizer.identity import assert_identical


def test_every_dtype_of_torch_is_there() -> None:
    assert {
        "bfloat16",
        "float8_e8m0fnu",
        "float4_e2m1fn_x2",
        "complex32",
        "uint3",
        "qint8",
        "bits8",
    } <= samples.dtypes().keys()
    assert len(samples.dtypes()) == len({d for d in vars(torch).values() if isinstance(d, torch.dtype)})
    with_contiguous = {dtype for dtype, _, layout in samples.cases() if layout == "contiguous"}
    assert with_contiguous == set(samples.dtypes())


@pytest.mark.parametrize("case", samples.cases(), ids="-".join)
def test_sample_is_what_its_name_says(case: tuple[str, str, str]) -> None:
    dtype, shape, layout = case
    tensor = samples.make(*case)
    assert tensor.dtype is samples.dtypes()[dtype]
    assert tuple(tensor.shape) == samples.SHAPES[shape]
    if layout in ("contiguous", "offset"):
        assert tensor.is_contiguous()
        assert (tensor.storage_offset() > 0) == (layout == "offset")
    elif tensor.numel():
        assert not tensor.is_contiguous()
        assert (0 in tensor.stride()) == (layout == "expanded")
    assert_identical(samples.make(*case), tensor)


def test_floats_hold_what_arithmetic_would_change() -> None:
    values = samples.make("float32", "1d", "contiguous")
    assert values.isnan().sum() == 3
    assert len(set(values[values.isnan()].view(torch.int32).tolist())) == 3, "NaNs without payloads"
    assert (values == 0).any()
    assert torch.signbit(values[values == 0]).all()
    assert values.isinf().sum() == 2
    assert ((values != 0) & (values.abs() < torch.finfo(torch.float32).tiny)).any(), "no subnormal"
