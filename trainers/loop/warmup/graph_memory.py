"""Whether a CUDA graph of a step has room beside the rest of a training.

A graph keeps its memory between steps, so what the optimizer needs comes on top. Kernels that are launched one by one
leave their memory to the optimizer.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

USABLE = 0.9  # share of the device's memory; the rest is fragmentation, and what evaluations and other processes hold


class GraphMemory:
    """Compares the memory of a step and of the optimizer with the device's. On a CPU there is always room."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._on_gpu = device, device.type == "cuda"
        self._of_optimizer: int | None = None  # peak bytes after the backward pass; None until measured

    def backward_ended(self) -> None:
        """Begin to watch the optimizer's memory. After the first graph, leave the peak statistics to the run."""
        if self._on_gpu and self._of_optimizer is None:
            torch.cuda.reset_peak_memory_stats(self._device)

    def has_room(self, rehearse: Callable[[], None]) -> bool:
        """Run `rehearse`, a step without the optimizer; return whether a graph of it has room."""
        if not self._on_gpu:
            rehearse()
            return True
        self._of_optimizer = self._of_optimizer or torch.cuda.max_memory_allocated(self._device)
        before = torch.cuda.memory_allocated(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        rehearse()
        of_graph = torch.cuda.max_memory_allocated(self._device) - before
        total = torch.cuda.get_device_properties(self._device).total_memory
        return self._of_optimizer + of_graph <= USABLE * total
