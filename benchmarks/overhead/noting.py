"""The training of `plain_training` as a timetrial workload; it writes the same file."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.overhead.plain_training import note
from trainers.data.digits import digits
from trainers.data.images import ImageData
from trainers.workload import Batch, TrialModule, Workload


class Noting(TrialModule):
    def __init__(self, data: ImageData, learning_rate: float, weight_decay: float) -> None:
        super().__init__()
        self.max_epochs = 1
        self.learning_rate = learning_rate
        self.net = nn.Linear(data.image_size[0] * data.image_size[1], data.num_classes)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=self.learning_rate)

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        logits = self.net(batch["images"].flatten(1).float() / 255)
        losses = nn.functional.cross_entropy(logits, batch["labels"], reduction="none")
        return (losses * batch["weights"]).sum()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Not needed: the benchmark times the first training step."""

    def metrics(self) -> dict[str, float]:
        return {"accuracy": 0.0}

    def on_train_batch_end(self, *hook: Any) -> None:
        note(self.trainer.global_step, self.trainer.global_rank)


WORKLOAD = Workload(module=Noting, data={"digits": digits}, unit="images")
