"""Exchanges the gradients of a run's processes: during the backward pass, or after it."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from pytorch_lightning.strategies import DDPStrategy
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tracking.measure.training import ExchangeTimer


def overlaps(requested: bool | None, topology: str, num_nodes: int) -> bool:
    """Return whether gradients are exchanged during the backward pass; `requested` decides unless it is None.

    An overlapped exchange takes multiprocessors from the backward pass, and the compiler has to split the pass to send
    gradients early. If NCCL may use NVLink, the exchange is so short that both cost more than the overlap saves.

    `topology` is the class of the GPUs of one node (tracking.machine.environment). It does not cover links between
    nodes, and all processes have to decide alike, so runs on several nodes overlap.
    """
    direct = os.environ.get("NCCL_P2P_DISABLE", "0") == "0" and os.environ.get("NCCL_P2P_LEVEL") not in ("LOC", "0")
    nvlink = num_nodes == 1 and topology.startswith("NV") and direct
    return not nvlink if requested is None else requested


def options() -> dict[str, Any]:
    """Return the arguments of DistributedDataParallel for an overlapped exchange."""
    # Buffers are synchronized before an evaluation, not at every step; gradients need no second copy.
    known = inspect.signature(DistributedDataParallel).parameters  # PyTorch 2.15 renames an option.
    every_step = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    return {every_step: False, "gradient_as_bucket_view": True}


class Overlapped(DDPStrategy):
    """Exchange gradients during the backward pass, in DDP's buckets, at which compiled graphs are split.

    Lightning would make DDP on a CUDA stream of its own, for graphs of whole steps, which are not used here. PyTorch
    then warns that gradients may have to be synchronised between the two streams.
    """

    def _setup_model(self, model: nn.Module) -> DistributedDataParallel:
        return DistributedDataParallel(model, **options())


class AfterTheStep(DDPStrategy):
    """Exchange all gradients at once after the backward pass; the module is not wrapped and graphs are not split."""

    _blocked = False

    def configure_ddp(self) -> None:
        assert self.lightning_module is not None
        self._gradients = Gradients(self.lightning_module)
        self.exchange = ExchangeTimer(self.root_device)

    def share_weights(self) -> None:
        """Give all processes the weights and buffers of rank 0, before the first step. A collective call."""
        assert self.lightning_module is not None
        for tensor in self.lightning_module.state_dict().values():
            dist.broadcast(tensor, src=0)

    # Lightning's own few exchanges go over gloo: while it sets up, NCCL may still be connecting.
    def barrier(self, *args: Any, **kwargs: Any) -> None:
        dist.all_reduce(torch.zeros(()))

    def reduce(self, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return super().reduce(tensor.cpu(), *args, **kwargs)

    def post_backward(self, closure_loss: torch.Tensor) -> None:
        if not self._blocked:
            with self.exchange:
                self._gradients.average()

    @contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Let backward passes in the block skip the exchange."""
        self._blocked = True
        try:
            yield
        finally:
            self._blocked = False


class Gradients:
    """One buffer in which the gradients of a module are averaged over the processes.

    DDP copies gradients into a buffer too, but with a kernel for each.
    """

    def __init__(self, module: nn.Module) -> None:
        self._trained = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
        first = next(iter(self._trained.values()))
        self._slots, self._strides = list[Any](), list[tuple[int, ...]]()
        self._buffer = first.new_empty(sum(parameter.numel() for parameter in self._trained.values()))

    def average(self) -> None:
        """Replace every gradient by its mean. Raises RuntimeError for a parameter without one. A collective call."""
        if unused := [name for name, parameter in self._trained.items() if parameter.grad is None]:
            raise RuntimeError(
                f"{unused[0]} took no part in the loss. Next: freeze it (requires_grad_(False)) if that is intended"
            )
        gradients: list[Any] = [parameter.grad for parameter in self._trained.values()]
        slots = self._slots_like(gradients)
        torch._foreach_copy_(slots, gradients)
        mean = dist.ReduceOp.AVG if self._buffer.is_cuda else dist.ReduceOp.SUM  # Gloo cannot average.
        dist.all_reduce(self._buffer, mean)
        if mean == dist.ReduceOp.SUM:
            self._buffer /= dist.get_world_size()
        for parameter, gradient in zip(self._trained.values(), slots, strict=True):
            parameter.grad = gradient

    def _slots_like(self, gradients: list[Any]) -> list[Any]:
        """Return views of the buffer with the gradients' strides, so that a single kernel copies many."""
        strides = [gradient.stride() for gradient in gradients]
        if strides != self._strides:
            parts = self._buffer.split([gradient.numel() for gradient in gradients])
            self._strides = strides
            self._slots = [
                part.as_strided(like.size(), like.stride()) for part, like in zip(parts, gradients, strict=True)
            ]
        return self._slots
