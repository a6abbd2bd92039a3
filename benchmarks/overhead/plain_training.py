"""The training of `cluster_start` with Lightning alone, for torchrun. It writes the time at which a step has ended.

It imports nothing from timetrial.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

NOTED = "NOTED"  # environment variable: the file for the end of the first step, in Unix seconds


class Linear(pl.LightningModule):
    """Logistic regression on digits."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(64, 10)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.5)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(self.net(images), labels)

    def on_train_batch_end(self, *hook: Any) -> None:
        note(self.global_step, self.global_rank)


def note(step: int, rank: int) -> None:
    """Write the time of the first step's end on rank 0, atomically."""
    if step == 1 and rank == 0:
        part = Path(os.environ[NOTED] + ".part")
        part.write_text(str(time.time()), encoding="ascii")
        part.rename(os.environ[NOTED])


def main() -> None:
    images, labels = load_digits(return_X_y=True)
    rows = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, num_nodes=int(os.environ["WORLD_SIZE"]), max_epochs=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False,
    )  # fmt: skip
    trainer.fit(Linear(), DataLoader(rows, batch_size=64, shuffle=True))


if __name__ == "__main__":
    main()
