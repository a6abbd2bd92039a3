"""Tensors sharded over processes: this process's part, and the whole. Plain tensors count as whole.

FSDP cuts a parameter along one dimension. Each process has the same number of rows, rounded up; the last ones have
fewer, or zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def is_sharded(tensor: Any) -> bool:
    """Return whether a value is a DTensor. It compares the class's name, because importing the class takes long."""
    return isinstance(tensor, torch.Tensor) and type(tensor).__name__ == "DTensor"


def local(tensor: Any) -> torch.Tensor:
    """Return this process's part, which shares the tensor's memory."""
    part: torch.Tensor = tensor.to_local() if is_sharded(tensor) else tensor
    return part


def dimension(tensor: Any) -> int:
    """Return the dimension along which a sharded tensor is cut."""
    (placement,) = tensor.placements
    return int(placement.dim)


def part_of(whole: torch.Tensor, like: Any) -> torch.Tensor:
    """Return this process's part of a whole tensor, cut as `like` and on its device; `whole` if `like` is plain."""
    if not is_sharded(like):
        return whole
    dim, mesh = dimension(like), like.device_mesh
    rows = -(-whole.shape[dim] // mesh.size())
    first = min(mesh.get_local_rank() * rows, whole.shape[dim])
    part = whole.narrow(dim, first, min(rows, whole.shape[dim] - first))
    return part.to(like.device, copy=True)


def resharded(whole: torch.Tensor, like: Any) -> torch.Tensor:
    """Return a whole tensor sharded as `like`."""
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        part_of(whole, like).contiguous(), like.device_mesh, like.placements, run_check=False, shape=like.shape,
        stride=like.stride(),
    )  # fmt: skip


def whole(value: Any, kept: bool) -> Any:
    """Return the value with sharded tensors gathered: whole and on the host if `kept`, else empty.

    A collective call: all processes have the same tensors in the same order.
    """

    def made(tensor: Any) -> Any:
        if not is_sharded(tensor):
            return tensor
        full = tensor.full_tensor()
        return full.detach().cpu() if kept else full.new_empty(0, device="cpu")

    return mapped(value, made)


def mapped(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """Return the same dictionaries and lists with `change` applied to each tensor."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: mapped(inner, change) for key, inner in value.items()}
    return type(value)(mapped(inner, change) for inner in value) if type(value) in (list, tuple) else value
