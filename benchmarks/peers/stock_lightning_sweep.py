"""A sweep over device counts in stock Lightning and Hydra, as a user would write it. Its speed-up is false.

    python benchmarks/peers/stock_lightning_sweep.py -m devices=1,2

Each process writes `devices=N-rankR-PID.json` to `out`: the world size by the trainer and by torch.distributed, and the
indices of the samples that it trained. hydra_ddp_trap.py adds them up. All else is ordinary use.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hydra
import pytorch_lightning as pl
import torch
import torch.distributed as dist
import torch.nn.functional as F
from hydra.core.config_store import ConfigStore
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SKIPPED_STEPS = 5  # not timed: the first steps of a process load and allocate


@dataclass
class Config:
    devices: int = 1
    accelerator: str = "auto"
    num_samples: int = 48_000
    batch_size: int = 128
    out: str = "."  # an existing folder, absolute


class Classifier(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
        self.indices: list[torch.Tensor] = []  # of the samples that this process trained

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        images, labels, index = batch
        self.indices.append(index)
        return F.cross_entropy(self.net(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters())


class Stopwatch(pl.Callback):
    """The usual rate: steps x batch x the trainer's world size / seconds."""

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self.samples_per_sec = 0.0

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx == SKIPPED_STEPS:
            self._synchronize()
            self._start = time.perf_counter()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._synchronize()
        steps = trainer.global_step - SKIPPED_STEPS
        self.samples_per_sec = steps * self.batch_size * trainer.world_size / (time.perf_counter() - self._start)

    def _synchronize(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()


@hydra.main(version_base="1.3", config_path=None, config_name="config")
def main(cfg: Config) -> None:
    pl.seed_everything(1)
    images, labels = torch.randn(cfg.num_samples, 784), torch.randint(0, 10, (cfg.num_samples,))
    dataset = TensorDataset(images, labels, torch.arange(cfg.num_samples))
    loader = DataLoader(dataset, batch_size=cfg.batch_size, shuffle=True)
    model, stopwatch = Classifier(), Stopwatch(cfg.batch_size)
    trainer = pl.Trainer(
        devices=cfg.devices,
        strategy="ddp",
        accelerator=cfg.accelerator,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        callbacks=[stopwatch],
    )
    trainer.fit(model, loader)
    report = {
        "devices": cfg.devices,
        "trainer_world_size": trainer.world_size,
        "group_world_size": dist.get_world_size(),
        "rank": trainer.global_rank,
        "samples_per_sec": stopwatch.samples_per_sec,
        "seen": torch.cat(model.indices).tolist(),
    }
    name = f"devices={cfg.devices}-rank{trainer.global_rank}-{os.getpid()}.json"
    (Path(cfg.out) / name).write_text(json.dumps(report))


if __name__ == "__main__":
    ConfigStore.instance().store("config", Config)
    main()
