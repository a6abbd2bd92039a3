"""An LSTM in autocast's dtype. PyTorch's autocast runs cuDNN's LSTM in float16 even if the dtype is bf16.

float16 without a scaled loss loses small gradients, and would be cast back and forth between layers in bf16.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import _VF, nn

State = tuple[torch.Tensor, torch.Tensor]
BF16_SINCE = (91300, (8, 0))  # cuDNN's LSTM has bf16 from this version and this compute capability on.


class Lstm(nn.LSTM):
    """One layer in one direction over [T, n, inputs], with float32 weights; its output has autocast's dtype.

    If cuDNN has no LSTM in bf16, PyTorch's autocast chooses the dtype.
    """

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__(inputs, width)

    def forward(self, x: torch.Tensor, state: State | None = None) -> tuple[torch.Tensor, State]:  # type: ignore[override]
        dtype = autocast_type(x)
        if dtype is None or not (x.is_cuda and on_cudnn(x.device, dtype)):
            return super().forward(x, state)
        return self.in_type(dtype, x, state)

    def in_type(self, dtype: torch.dtype, x: torch.Tensor, state: State | None = None) -> tuple[torch.Tensor, State]:
        """Do what `forward` does, in `dtype`."""
        with torch.autocast(x.device.type, enabled=False):
            weights = OneCast.apply(dtype, self.weight_ih_l0, self.weight_hh_l0, self.bias_ih_l0, self.bias_hh_l0)
            if state is None:
                zeros = torch.zeros(1, x.shape[1], self.hidden_size, dtype=dtype, device=x.device)
                state = (zeros, zeros)
            before = [part.to(dtype) for part in state]
            output, hidden, cell = _VF.lstm(x.to(dtype), before, weights, True, 1, 0.0, self.training, False, False)
        return output, (hidden, cell)


class OneCast(torch.autograd.Function):
    """Casts weights into one contiguous buffer, as cuDNN needs them; it would copy separate ones."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.types = [weight.dtype for weight in weights]
        sizes = [weight.numel() for weight in weights]
        flat = torch.empty(sum(sizes), dtype=dtype, device=weights[0].device)
        parts = [part.view(weight.shape) for part, weight in zip(flat.split(sizes), weights, strict=True)]
        torch._foreach_copy_(parts, list(weights))
        return tuple(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return None, *(gradient.to(kind) for gradient, kind in zip(gradients, ctx.types, strict=True))


def autocast_type(x: torch.Tensor) -> torch.dtype | None:
    """Return autocast's dtype on x's device; None without autocast."""
    return torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else None


def on_cudnn(device: torch.device, dtype: torch.dtype) -> bool:
    if not torch.backends.cudnn.is_available() or torch.version.hip:
        return False
    version, capability = BF16_SINCE
    if dtype != torch.bfloat16:
        return True
    return (torch.backends.cudnn.version() or 0) >= version and torch.cuda.get_device_capability(device) >= capability
