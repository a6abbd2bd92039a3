"""How the processes of a run exchange their gradients."""

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


def overlaps(asked: bool | None, topology: str, num_nodes: int) -> bool:
    """Whether gradients are exchanged during the backward pass, on GPUs of this class (tracking.machine.environment).

    The class is that of one node's GPUs, and each node knows its own alone: between nodes it says nothing, and all
    processes have to decide alike.

    The exchange takes multiprocessors from the pass, and the compiler has to cut the pass in pieces to let gradients
    out early. Over NVLink, where NCCL may use it, it is so short that both cost more than they hide.
    """
    direct = os.environ.get("NCCL_P2P_DISABLE", "0") == "0" and os.environ.get("NCCL_P2P_LEVEL") not in ("LOC", "0")
    joined = num_nodes == 1 and topology.startswith("NV") and direct
    return not joined if asked is None else asked


def options() -> dict[str, Any]:
    """Arguments of DistributedDataParallel where gradients leave during the backward pass."""
    # Buffers are made the same before an evaluation rather than at every step; gradients need no second copy.
    known = inspect.signature(DistributedDataParallel).parameters  # PyTorch 2.15 renames an option.
    every_step = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    return {every_step: False, "gradient_as_bucket_view": True}


class Overlapped(DDPStrategy):
    """Gradients leave during the backward pass, in DDP's buckets; what is compiled is cut in pieces for it.

    Lightning would make DDP on another CUDA stream than the one that trains, for graphs of whole steps. There are none
    here, and PyTorch warns that gradients may have to be synchronised between the two.
    """

    def _setup_model(self, model: nn.Module) -> DistributedDataParallel:
        return DistributedDataParallel(model, **options())


class AfterTheStep(DDPStrategy):
    """All gradients leave in one exchange when the last of them is there; nothing is wrapped or cut for it."""

    _blocked = False

    def configure_ddp(self) -> None:
        assert self.lightning_module is not None
        self._gradients = Gradients(self.lightning_module)
        self.exchange = ExchangeTimer(self.root_device)

    def post_backward(self, closure_loss: torch.Tensor) -> None:
        if not self._blocked:
            with self.exchange:
                self._gradients.average()

    @contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Backward passes in the block add to the gradients of this process alone."""
        self._blocked = True
        try:
            yield
        finally:
            self._blocked = False


class Gradients:
    """The gradients of a module in one buffer, where they are averaged over the processes.

    DDP copies them there as well, with a kernel for each. Making one is a collective call: all modules become the first
    process's.
    """

    def __init__(self, module: nn.Module) -> None:
        self._trained = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
        first = next(iter(self._trained.values()))
        self._buffer = first.new_empty(sum(parameter.numel() for parameter in self._trained.values()))
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, src=0)

    def average(self) -> None:
        """Replace every gradient by its mean. Raises RuntimeError for a parameter that has none; a collective call."""
        if unused := [name for name, parameter in self._trained.items() if parameter.grad is None]:
            raise RuntimeError(
                f"{unused[0]} took no part in the loss; freeze it (requires_grad_(False)) if it is not to"
            )
        own: list[Any] = [parameter.grad for parameter in self._trained.values()]
        parts = self._buffer.split([gradient.numel() for gradient in own])
        # Laid out as the gradients are, so that a single kernel copies many.
        shared = [part.as_strided(like.size(), like.stride()) for part, like in zip(parts, own, strict=True)]
        torch._foreach_copy_(shared, own)
        mean = dist.ReduceOp.AVG if self._buffer.is_cuda else dist.ReduceOp.SUM  # Gloo has no mean.
        dist.all_reduce(self._buffer, mean)
        if mean == dist.ReduceOp.SUM:
            self._buffer /= dist.get_world_size()
        for parameter, gradient in zip(self._trained.values(), shared, strict=True):
            parameter.grad = gradient
