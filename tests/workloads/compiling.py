"""The tiny workload, which compiles its network. Its function has no state, so a run keeps its trace."""

from __future__ import annotations

from functools import partial

import torch

from tests.workloads import tiny
from trainers.ops.compiling import compiled
from trainers.workload import Workload


class Compiling(tiny.Tiny):
    def compile_hot_path(self) -> None:
        self._logits = partial(compiled(logits_of, self.device), self.net)

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        return self._logits(images)


def logits_of(net: torch.nn.Linear, images: torch.Tensor) -> torch.Tensor:
    """uint8 [n, 1, height, width] to logits [n, num_classes]."""
    return net(images.flatten(1).float() / 255)


WORKLOAD = Workload(module=Compiling, data=tiny.WORKLOAD.data)
