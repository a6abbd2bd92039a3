"""A workload of one's own: a linear classifier of the handwritten digits."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from timetrial import Batch, ClassificationData, ConfusionCounter, TrialModule, Workload, confusion_cells, digits


class Linear(TrialModule):
    """`epochs` epochs of SGD at a constant learning rate; the constructor's options are `hparams` of the YAML."""

    def __init__(
        self, data: ClassificationData, learning_rate: float, weight_decay: float, epochs: int, momentum: float = 0.9
    ) -> None:
        super().__init__()
        self.learning_rate, self.weight_decay, self.momentum = learning_rate, weight_decay, momentum
        self.max_epochs = epochs
        height, width = data.image_size
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(height * width, data.num_classes))
        self._counter = ConfusionCounter(data.num_classes)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            self.parameters(), lr=self.learning_rate, momentum=self.momentum, weight_decay=self.weight_decay
        )

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        losses = self._losses(self._logits(batch), batch)
        return (losses * batch["weights"]).sum()  # the weights make it a mean, over all processes too

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        logits = self._logits(batch)
        real = (batch["weights"] > 0).float()  # each real sample counts once, what fills up a batch not at all
        self._counter.add(confusion_cells(logits, batch["labels"], real), (self._losses(logits, batch) * real).sum())

    def metrics(self) -> dict[str, float]:
        matrix, loss = self._counter.reduce()  # summed over all processes
        return {"accuracy": float(matrix.trace() / matrix.sum()), "loss": loss / float(matrix.sum())}

    def _logits(self, batch: Batch) -> torch.Tensor:
        logits: torch.Tensor = self.net(batch["images"].float() / 255)
        return logits

    def _losses(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        return F.cross_entropy(logits.float(), batch["labels"], reduction="none")


WORKLOAD = Workload(module=Linear, data={"digits": digits}, unit="images")
