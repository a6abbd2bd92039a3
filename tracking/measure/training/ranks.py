"""Collective calls between a run's processes on the host, over gloo, so that they do not queue behind device work."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import cast

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Ranks:
    """The `size` processes of a process group that uses gloo for host tensors. Every method is a collective call.

    A `group` of None is torch's default group.
    """

    size: int = 1
    group: dist.ProcessGroup | None = None

    @classmethod
    def connect(cls, limit_sec: float | None = None) -> Ranks:
        """All processes of torch's group, in a new gloo group; one process if there is no group. A collective call.

        Its calls raise RuntimeError after waiting `limit_sec` for another rank; by default torch's limit.
        """
        if not dist.is_initialized() or dist.get_world_size() == 1:
            return cls()
        timeout = None if limit_sec is None else timedelta(seconds=limit_sec)
        return cls(dist.get_world_size(), cast(dist.ProcessGroup, dist.new_group(backend="gloo", timeout=timeout)))

    def broadcast(self, text: str) -> str:
        """Rank 0's text, on every rank."""
        if self.size == 1:
            return text
        received = [text]
        dist.broadcast_object_list(received, src=0, group=self.group)
        return received[0]

    def gather(self, local: torch.Tensor) -> torch.Tensor:
        """The tensors of all ranks, which must have the same shape: shape (ranks, *shape)."""
        if self.size == 1:
            return local[None]
        received = [torch.empty_like(local) for _ in range(self.size)]
        dist.all_gather(received, local, group=self.group)
        return torch.stack(received)

    def gather_texts(self, local: str) -> list[str]:
        """The texts of all ranks, by rank."""
        if self.size == 1:
            return [local]
        received = [""] * self.size
        dist.all_gather_object(received, local, group=self.group)
        return received

    def total(self, value: float) -> float:
        return float(self.gather(torch.tensor(value, dtype=torch.float64)).sum())

    def largest(self, value: float) -> float:
        return float(self.gather(torch.tensor(value, dtype=torch.float64)).max())

    def wait(self) -> None:
        """Wait until all ranks have called this."""
        if self.size > 1:
            dist.barrier(group=self.group)
