"""Linear layers in fp8, by PyTorch's scaled matrix product, with one scale a tensor, computed at each use.

Values and weights have 3 bits of mantissa (e4m3); gradients have 2 bits and more range (e5m2), as in Micikevicius et
al. 2022, https://arxiv.org/abs/2209.05433. Sums are in float32. On a CPU a float32 product of the rounded numbers
replaces it; tests compare with that.
"""

from __future__ import annotations

from typing import Any

import torch

VALUES, GRADIENTS = torch.float8_e4m3fn, torch.float8_e5m2
SMALLEST = 1e-12  # lower bound of the largest value, so that a tensor of zeros has a scale, too
MULTIPLE = 16  # The matrix units need all sides to be multiples of it.
Scaled = tuple[torch.Tensor, torch.Tensor]


def scaled(x: torch.Tensor, dtype: torch.dtype) -> Scaled:
    """Return x scaled into the range of `dtype`, and the scalar that scales it back.

    The scale is a power of two: it rounds nothing, and is the same number in bfloat16.
    """
    most = torch.finfo(dtype).max
    wide = x.float()
    scale = (most / wide.abs().amax().clamp(min=SMALLEST)).log2().floor().exp2()
    narrow = (wide * scale).clamp(-most, most).to(dtype)
    return narrow.contiguous(), scale.reciprocal()


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


def product(left: Scaled, right: Scaled, dtype: torch.dtype, fast: bool) -> torch.Tensor:
    """Return left @ right.t() of [m, k] and [n, k], both row-major. `fast` sums with fewer bits: not for gradients."""
    (a, of_a), (b, of_b) = left, right
    if not a.is_cuda:
        return (a.float() @ b.float().t() * (of_a * of_b)).to(dtype)
    result: torch.Tensor = scaled_product(a, b, of_a, of_b, dtype, fast)
    return result


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        values, weights = scaled(x, VALUES), scaled(weight, VALUES)
        ctx.save_for_backward(*values, *weights)
        return product(values, weights, x.dtype, fast=True)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, of_values, weights, of_weights = ctx.saved_tensors
        narrow, of_gradient = scaled(gradients[0], GRADIENTS)
        dtype = gradients[0].dtype
        of_x = product((narrow, of_gradient), (turned(weights), of_weights), dtype, fast=False)
        of_weight = product((turned(narrow), of_gradient), (turned(values), of_values), dtype, fast=False)
        return of_x, of_weight


def turned(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous()


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Apply a linear layer to [..., inputs], in the inputs' dtype. All sides are multiples of MULTIPLE."""
    rows: Any = _Linear.apply(x.flatten(0, -2), weight.to(x.dtype))
    whole: torch.Tensor = rows.unflatten(0, x.shape[:-1])
    return whole if bias is None else whole + bias.to(x.dtype)
