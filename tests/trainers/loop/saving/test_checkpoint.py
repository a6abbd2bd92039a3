"""A checkpoint holds all that the rest of the training depends on, also of workloads that are not ours."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from conf.schema import ConfigError
from tracking.record import checkpoints, journal
from tracking.record.journal import Journal
from trainers.loop.saving.checkpoint import CheckpointCallback, Interval
from trainers.loop.saving.random_states import random_states, set_random_states
from trainers.workload import Shard

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`"),
]
SHARD = Shard(0, 1, torch.device("cpu"))


@pytest.fixture(scope="module", autouse=True)
def process_group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Restless(pl.LightningModule):
    """Depends on every random number there is, on a schedule of Lightning's, and on what happens at an epoch's end."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
        self.register_buffer("average", torch.zeros(()))
        self.seen: list[float] = []

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.1)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)}

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        self.seen.append(float(batch[0].sum()))
        noise = random.random() + np.random.random() + torch.rand(())
        return (self.net(batch[0]) - noise).square().mean()

    def on_train_epoch_end(self) -> None:
        assert isinstance(self.average, torch.Tensor)
        self.average.mul_(0.5).add_(sum(self.seen) * (self.current_epoch + 1))
        self.seen.clear()


def trained(folder: Path, checkpoint: Path | None = None, epochs: int = 5, **options: Any) -> Restless:
    pl.seed_everything(3 if checkpoint is None else 4, verbose=False)
    data = TensorDataset(torch.arange(64.0).view(16, 4))
    module = Restless()
    log = Journal(folder / "journal.jsonl")
    trainer = pl.Trainer(accelerator="cpu", devices=1, max_epochs=epochs, barebones=True)
    loader: Any = DataLoader(data, batch_size=4, shuffle=True)
    interval = Interval(options.get("every_epochs", 1))
    interval.check(epochs, epochs * len(loader), loader)
    trainer.callbacks.append(CheckpointCallback(folder, interval, SHARD, log, loader))  # type: ignore[attr-defined]
    trainer.fit(module, loader, ckpt_path=checkpoint, weights_only=True)
    log.close()
    return module


def test_what_continues_ends_as_what_was_never_interrupted(tmp_path: Path) -> None:
    uninterrupted = trained(tmp_path).state_dict()
    assert [checkpoint.epoch_num for checkpoint in checkpoints.in_folder(tmp_path)] == [4, 3], (
        "not after the last epoch"
    )
    continued = trained(tmp_path, checkpoints.path_of(tmp_path, 3)).state_dict()
    for name, tensor in uninterrupted.items():
        assert torch.equal(tensor, continued[name]), name


def test_every_interval_is_between_its_events(tmp_path: Path) -> None:
    trained(tmp_path, every_epochs=2)
    events = [(event.key, event.values["epoch_num"]) for event in journal.events(tmp_path / "journal.jsonl")]
    assert events == [(f"checkpoint_{edge}", epoch) for epoch in (2, 4) for edge in ("start", "stop")]


def test_an_interval_that_would_never_save_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="checkpoint_every_epochs=5: the run has only 5 epochs"):
        trained(tmp_path, every_epochs=5)


def test_random_states_come_back_out_of_a_file_that_runs_no_code(tmp_path: Path) -> None:
    def draw() -> list[float]:
        return [random.random(), random.gauss(0, 1), np.random.random(), np.random.normal(), float(torch.rand(()))]

    draw()  # normal numbers come in pairs: the second is part of the state
    torch.save(random_states(SHARD.device), tmp_path / "states")
    expected = draw()
    draw()
    set_random_states(torch.load(tmp_path / "states", weights_only=True), SHARD.device)
    assert draw() == expected


@pytest.mark.parametrize("damage", ["cut", "bit", "empty", "gone"])
def test_a_checkpoint_that_is_damaged_is_told_from_a_whole_one(tmp_path: Path, damage: str) -> None:
    for epoch in (1, 2):
        path = checkpoints.path_of(tmp_path, epoch)
        path.parent.mkdir(exist_ok=True)
        torch.save({"weights": torch.randn(1000)}, path)
    newest = checkpoints.newest(tmp_path)
    assert newest is not None
    assert newest.epoch_num == 2
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes({"cut": content[: len(content) // 2], "bit": content, "empty": b"", "gone": b""}[damage])
    if damage == "gone":
        path.unlink()
    newest = checkpoints.newest(tmp_path)
    assert newest is not None
    assert newest.epoch_num == 1


def test_the_two_newest_are_kept_and_nothing_half_written(tmp_path: Path) -> None:
    folder = checkpoints.path_of(tmp_path, 1).parent
    folder.mkdir()
    for name in ("epoch9.ckpt", "epoch10.ckpt", "epoch11.ckpt", ".epoch12.ckpt.77.tmp"):
        (folder / name).touch()
    checkpoints.prune(tmp_path)
    assert {path.name for path in folder.iterdir()} == {"epoch10.ckpt", "epoch11.ckpt"}
