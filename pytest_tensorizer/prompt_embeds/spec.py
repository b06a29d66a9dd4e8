"""What a model asks of the prompt embeddings that it is given."""

from __future__ import annotations

from dataclasses import dataclass

import torch

FLOATING_DTYPES: tuple[torch.dtype, ...] = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
)
"""The dtypes in which an embedding can be sent or asked for: one number an element, with a sign and a zero.

That leaves out `float8_e8m0fnu`, a scale format with neither, and `float4_e2m1fn_x2`, two numbers an element.
"""


@dataclass(frozen=True)
class EmbedsSpec:
    """The shape, dtype and size that a model's prompt embeddings must have.

    Attributes:
        hidden_size: the model's hidden size: the length of every row, in elements. At least 1.
        dtype: the model's dtype, one of `FLOATING_DTYPES`; values are cast to it as `Tensor.to` casts.
        max_bytes: the most bytes that the dense `(tokens, hidden_size)` result may occupy in `dtype`. A
            larger one is refused before it is allocated. None leaves it to the allocator.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has the right type and a value that no model can mean.
    """

    hidden_size: int
    dtype: torch.dtype
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        _check_positive("hidden_size", self.hidden_size)
        if not isinstance(self.dtype, torch.dtype):
            raise TypeError(f"dtype={self.dtype!r} is no torch.dtype: pass one such as torch.float16")
        if self.dtype not in FLOATING_DTYPES:
            choice = ", ".join(str(dtype) for dtype in FLOATING_DTYPES)
            raise ValueError(f"dtype={self.dtype} cannot hold embeddings: use one of {choice}")
        if self.max_bytes is not None:
            _check_positive("max_bytes", self.max_bytes)

    def nbytes(self, tokens: int) -> int:
        """The bytes that `tokens` dense rows occupy in `dtype`."""
        return tokens * self.hidden_size * self.dtype.itemsize


def _check_positive(name: str, value: object) -> None:
    # bool is an int to isinstance, and True would pass for a size of 1.
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}={value!r} is no int: pass a number of at least 1")
    if value < 1:
        raise ValueError(f"{name}={value!r} is too small: pass a number of at least 1")
