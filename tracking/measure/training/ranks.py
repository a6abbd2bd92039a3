"""The processes of a run, asked on the host: over gloo, so that no question queues up behind the devices' work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Ranks:
    """So many processes of a process group that has gloo for tensors on the host; None is torch's own. All of this is
    collective."""

    size: int = 1
    group: dist.ProcessGroup | None = None

    @classmethod
    def joined(cls) -> Ranks:
        """All processes of torch's group, if there is one, in a group of their own over gloo. A collective call."""
        if not dist.is_initialized() or dist.get_world_size() == 1:
            return cls()
        return cls(dist.get_world_size(), cast(dist.ProcessGroup, dist.new_group(backend="gloo")))

    def broadcast(self, words: str) -> str:
        """What rank 0 says."""
        if self.size == 1:
            return words
        said = [words]
        dist.broadcast_object_list(said, src=0, group=self.group)
        return said[0]

    def gather(self, own: torch.Tensor) -> torch.Tensor:
        """Every rank's tensor, all of one shape: shape (ranks, *shape)."""
        if self.size == 1:
            return own[None]
        received = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(received, own, group=self.group)
        return torch.stack(received)

    def words(self, own: str) -> list[str]:
        """What every rank says."""
        if self.size == 1:
            return [own]
        received = [""] * self.size
        dist.all_gather_object(received, own, group=self.group)
        return received

    def total(self, value: float) -> float:
        return float(self.gather(torch.tensor(value, dtype=torch.float64)).sum())

    def largest(self, value: float) -> float:
        return float(self.gather(torch.tensor(value, dtype=torch.float64)).max())

    def wait(self) -> None:
        """Until all are here."""
        if self.size > 1:
            dist.barrier(group=self.group)
