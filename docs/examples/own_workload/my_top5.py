"""A metric of one's own: the share of labels among the five likeliest classes."""

from __future__ import annotations

import torch
import torch.distributed as dist
from my_workload import Linear

from timetrial import Batch, ClassificationData, Workload, digits


class WithTop5(Linear):
    """The linear classifier, which also returns `top5_accuracy`."""

    def __init__(self, data: ClassificationData, learning_rate: float, weight_decay: float, epochs: int) -> None:
        super().__init__(data, learning_rate, weight_decay, epochs)
        self._counts: list[torch.Tensor] = []  # of each batch: hits and samples; on the device, so that no step waits

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        super().validation_step(batch, batch_idx)
        likeliest = self._logits(batch).topk(5).indices
        hits = (likeliest == batch["labels"][:, None]).any(dim=1)
        real = batch["weights"] > 0  # not what fills up a batch
        self._counts.append(torch.stack([(hits & real).sum(), real.sum()]))

    def metrics(self) -> dict[str, float]:
        counts = torch.stack(self._counts).sum(dim=0)
        self._counts.clear()
        if dist.is_initialized():
            dist.all_reduce(counts)  # over all processes
        hits, samples = counts.tolist()
        return super().metrics() | {"top5_accuracy": hits / samples}


WORKLOAD = Workload(module=WithTop5, data={"digits": digits}, unit="images")
