"""The tiny workload, which compiles its network."""

from __future__ import annotations

import torch

from tests.workloads import tiny
from trainers.ops.compiling import compiled
from trainers.workload import Workload


class Compiling(tiny.Tiny):
    def compile_hot_path(self) -> None:
        self._logits = compiled(tiny.Logits(self.net), self.device)

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        return self._logits(images)


WORKLOAD = Workload(module=Compiling, data=tiny.WORKLOAD.data)
