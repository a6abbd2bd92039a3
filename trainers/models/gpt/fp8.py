"""Linear layers in fp8, by PyTorch's scaled matrix product, with one scale a tensor, computed at each use.

Values and weights have 3 bits of mantissa (e4m3); gradients have 2 bits and more range (e5m2), as in Micikevicius et
al. 2022, https://arxiv.org/abs/2209.05433. Sums are in float32. On a CPU a float32 product of the rounded numbers
replaces it; tests compare with that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

VALUES, GRADIENTS = torch.float8_e4m3fn, torch.float8_e5m2
SMALLEST = 1e-12  # lower bound of the largest value, so that a tensor of zeros has a scale, too
MULTIPLE = 16  # The matrix units need all sides to be multiples of it.


class Narrow(NamedTuple):
    """A matrix [m, n] in fp8. Matrix units multiply rows by rows, so it is also there turned."""

    rows: torch.Tensor  # [m, n], row-major
    columns: torch.Tensor  # [n, m], row-major
    back: torch.Tensor  # the scalar, float32, that scales the numbers back


class Kept(NamedTuple):
    """A weight, and its numbers in fp8 from the start of a step. The gradient is the weight's."""

    weight: torch.Tensor
    narrow: Narrow


def narrowed(x: torch.Tensor, dtype: torch.dtype) -> Narrow:
    """Return the matrix x scaled into the range of `dtype`.

    The scale is a power of two, so that it rounds nothing.
    """
    scale = (torch.finfo(dtype).max / x.abs().amax().float().clamp(min=SMALLEST)).log2().floor().exp2()
    rows, columns = both_ways(x.contiguous(), scale, dtype)
    return Narrow(rows, columns, scale.reciprocal())


def both_ways(x: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x * scale in `dtype`, and the same turned."""
    most = torch.finfo(dtype).max
    rows = (x.float() * scale).clamp(-most, most).to(dtype)
    return rows, rows.t().contiguous()


def kept(matrices: Sequence[torch.Tensor]) -> list[Kept]:
    """Cast weights [..., inputs] for all products of a step."""
    return [Kept(matrix, narrowed(matrix.detach().flatten(0, -2), VALUES)) for matrix in matrices]


@torch.library.custom_op("timetrial::scaled_product", mutates_args=(), device_types="cuda")
def scaled_product(
    a: torch.Tensor, b: torch.Tensor, of_a: torch.Tensor, of_b: torch.Tensor, dtype: torch.dtype, fast: bool
) -> torch.Tensor:
    """Compute `product` on a GPU.

    The scaled product refuses scales in bfloat16, and PyTorch 2.11's compiler passed one (gradients of size 1.5b). So
    the scales are cast here, in an operator that the compiler does not change.
    """
    result: torch.Tensor = torch._scaled_mm(
        a, b.t(), scale_a=of_a.float(), scale_b=of_b.float(), out_dtype=dtype, use_fast_accum=fast
    )
    return result


@scaled_product.register_fake
def _(
    a: torch.Tensor, b: torch.Tensor, of_a: torch.Tensor, of_b: torch.Tensor, dtype: torch.dtype, fast: bool
) -> torch.Tensor:
    return a.new_empty((a.shape[0], b.shape[0]), dtype=dtype)


def product(
    a: torch.Tensor, of_a: torch.Tensor, b: torch.Tensor, of_b: torch.Tensor, dtype: torch.dtype, fast: bool = False
) -> torch.Tensor:
    """Return a @ b.t() of [m, k] and [n, k], scaled back. `fast` sums with fewer bits: not for gradients."""
    if not a.is_cuda:
        return (a.float() @ b.float().t() * (of_a * of_b)).to(dtype)
    result: torch.Tensor = scaled_product(a, b, of_a, of_b, dtype, fast)
    return result


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, narrow: Narrow | None) -> torch.Tensor:
        rows, columns, back = narrowed(x, VALUES)
        weights = narrow or narrowed(weight, VALUES)
        ctx.save_for_backward(columns, back, weights.columns, weights.back)
        ctx.dtype = weight.dtype
        return product(rows, back, weights.rows, weights.back, x.dtype, fast=True)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        columns, back, weight_columns, weight_back = ctx.saved_tensors
        gradient = narrowed(gradients[0], GRADIENTS)
        of_x = product(gradient.rows, gradient.back, weight_columns, weight_back, gradients[0].dtype)
        of_weight = product(gradient.columns, gradient.back, columns, back, ctx.dtype)
        return of_x, of_weight, None


def linear(x: torch.Tensor, weight: torch.Tensor | Kept, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Apply a linear layer to [..., inputs], in the inputs' dtype. All sides are multiples of MULTIPLE.

    The weight is [..., inputs], with one output for each row. Its gradient has its dtype.
    """
    whole, narrow = weight if isinstance(weight, Kept) else (weight, None)
    rows: Any = _Linear.apply(x.flatten(0, -2), whole.flatten(0, -2), narrow)
    result: torch.Tensor = rows.unflatten(0, x.shape[:-1])
    return result if bias is None else result + bias.flatten().to(x.dtype)
