"""Computes the loss of a batch together with its gradients, so that only one hidden layer is stored for them.

The first layer is linear in the embeddings of user and item. It is applied to whole tables, because a batch uses each
row many times. The later layers are Triton kernels, which the compiler sees as one PyTorch operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch

if TYPE_CHECKING:
    from trainers.models.ncf.network import NeuMF

SHARED_BYTES = 160_000  # shared memory of a multiprocessor that the kernels may need
Tensor = torch.Tensor
Eleven = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
LARGEST = (256, 128, 64)  # largest sizes of the hidden layers


def has_kernels(net: NeuMF, device: torch.device) -> bool:
    """Return whether the kernels support the network's sizes and the GPU."""
    sizes = [layer.out_features for layer in (net.first, *net.others)]
    if device.type != "cuda" or len(sizes) != len(LARGEST):
        return False
    fits = all(32 <= size <= most for size, most in zip(sizes, LARGEST, strict=True)) and 16 <= net.factors <= 64
    powers = all(size.bit_count() == 1 for size in (*sizes, net.factors))
    return fits and powers and torch.cuda.get_device_properties(device).shared_memory_per_block_optin >= SHARED_BYTES


def loss(
    net: NeuMF, rows: tuple[torch.Tensor, torch.Tensor], users: torch.Tensor, items: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Return what trainers.models.ncf.module.training_loss returns, from `rows` of the network's first layer."""
    user_rows, item_rows = rows
    second, third = net.others
    weight2, weight3 = (layer.weight.to(item_rows.dtype) for layer in (second, third))
    largest = weights.amax().clamp(min=torch.finfo(torch.float32).tiny)
    # Weights of at most 1 keep all slopes within the range of fp16.
    total = _gradients(
        user_rows, item_rows, net.mf_user.weight, net.mf_item.weight, weight2, second.bias, weight3, third.bias,
        net.final.weight[0], net.final.bias, users, items, weights / largest,
    )[0]  # fmt: skip
    loss: torch.Tensor = total * (largest / items.shape[1])
    return loss


@torch.library.custom_op("timetrial::neumf_loss", mutates_args=())
def _gradients(
    user_rows: torch.Tensor, item_rows: torch.Tensor, mf_user: torch.Tensor, mf_item: torch.Tensor,
    weight2: torch.Tensor, bias2: torch.Tensor, weight3: torch.Tensor, bias3: torch.Tensor,
    final: torch.Tensor, final_bias: torch.Tensor, users: torch.Tensor, items: torch.Tensor, weights: torch.Tensor,
) -> Eleven:  # fmt: skip
    """Return the loss, and its gradients by the first ten arguments."""
    from trainers.models.ncf import fused_triton

    tensors = (
        user_rows, item_rows, mf_user, mf_item, weight2, bias2, weight3, bias3, final, final_bias, users, items, weights
    )  # fmt: skip
    return cast("Eleven", fused_triton.gradients(*(tensor.contiguous() for tensor in tensors)))


@_gradients.register_fake
def _(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    weights = tensors[-1]
    return weights.new_empty(()), *(weights.new_empty(tensor.shape) for tensor in tensors[:10])


def _keep(ctx: Any, inputs: tuple[torch.Tensor, ...], output: tuple[torch.Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.kinds = [tensor.dtype for tensor in inputs[:10]]


def _backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> tuple[torch.Tensor | None, ...]:
    scaled = (kept * gradient for kept in ctx.saved_tensors)
    return *(each.to(kind) for each, kind in zip(scaled, ctx.kinds, strict=True)), None, None, None


_gradients.register_autograd(_backward, setup_context=_keep)
