"""Tensors that lie in parts on several processes: the part of this one, and the whole. Plain tensors are whole.

FSDP cuts a parameter along one dimension. Each process has so many rows, rounded up, and the last ones fewer or none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def is_sharded(tensor: Any) -> bool:
    """Whether it is a DTensor. A class that was never imported has no tensors, and importing it takes long."""
    return isinstance(tensor, torch.Tensor) and type(tensor).__name__ == "DTensor"


def local(tensor: Any) -> torch.Tensor:
    """The part of this process, in the tensor's own memory."""
    part: torch.Tensor = tensor.to_local() if is_sharded(tensor) else tensor
    return part


def dimension(tensor: Any) -> int:
    """Along which a sharded tensor is cut."""
    (placement,) = tensor.placements
    return int(placement.dim)


def part_of(whole: torch.Tensor, like: Any) -> torch.Tensor:
    """This process's part of a whole tensor, as `like` is cut; on the device of that. `whole` where `like` is."""
    if not is_sharded(like):
        return whole
    dim, mesh = dimension(like), like.device_mesh
    rows = -(-whole.shape[dim] // mesh.size())
    first = min(mesh.get_local_rank() * rows, whole.shape[dim])
    part = whole.narrow(dim, first, min(rows, whole.shape[dim] - first))
    return part.to(like.device, copy=True)


def resharded(whole: torch.Tensor, like: Any) -> torch.Tensor:
    """A sharded tensor of the content of a whole one."""
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        part_of(whole, like).contiguous(), like.device_mesh, like.placements, run_check=False, shape=like.shape,
        stride=like.stride(),
    )  # fmt: skip


def whole(value: Any, kept: bool) -> Any:
    """The same with every sharded tensor whole, on the host of a process that keeps it; others get empty ones.

    A collective call: all processes have the same tensors in the same order.
    """

    def made(tensor: Any) -> Any:
        if not is_sharded(tensor):
            return tensor
        full = tensor.full_tensor()
        return full.detach().cpu() if kept else full.new_empty(0, device="cpu")

    return mapped(value, made)


def mapped(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """The same dictionaries and lists with other tensors."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: mapped(inner, change) for key, inner in value.items()}
    return type(value)(mapped(inner, change) for inner in value) if type(value) in (list, tuple) else value
