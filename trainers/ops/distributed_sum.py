"""Sums over an evaluation: accumulated on the device without synchronising, and reduced over processes at its end."""

from __future__ import annotations

import torch
import torch.distributed as dist


class DistributedSum:
    """Adds up vectors of one length, in float64."""

    def __init__(self) -> None:
        # Not a buffer, because DDP would broadcast it; not an inference tensor, because it outlives inference mode.
        self._total: torch.Tensor | None = None

    def add(self, values: torch.Tensor) -> None:
        """Add a batch's sums, float [k], on the device."""
        if self._total is None:
            with torch.inference_mode(False):
                self._total = torch.zeros(len(values), dtype=torch.float64, device=values.device)
        self._total += values

    def reduce(self) -> list[float]:
        """Return the sums over all batches and processes, and reset them to zero. A collective call."""
        total = self._total
        assert total is not None, "nothing was evaluated"
        self._total = None
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(total)
        sums: list[float] = total.tolist()
        return sums
