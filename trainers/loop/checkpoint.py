"""Checkpoints at the ends of epochs: all that the rest of the training depends on, saved without endangering it.

Lightning collects the state of model, optimizer, schedule, loss scaler, loops and callbacks, and restores it; what it
leaves out, the random states of every process, is added here. The order of the samples follows from seed and epoch.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
import torch.distributed as dist
from lightning_fabric.plugins import TorchCheckpointIO
from pytorch_lightning.callbacks import Checkpoint

from conf.schema import ConfigError
from tracking.record import Journal, checkpoints, documents
from trainers.workload import Shard


class WholeFiles(TorchCheckpointIO):
    """Writes a file durably and whole or not at all; `error` says why not. A disk that is full ends no training."""

    error = ""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        self.error = ""
        try:
            Path(path).parent.mkdir(mode=0o700, exist_ok=True)
            with documents.replacing(Path(path)) as file:
                torch.save(checkpoint, file)
        except (OSError, RuntimeError) as error:  # PyTorch makes a RuntimeError of what the file raises.
            self.error = str(error.__context__ or error)


class CheckpointCallback(Checkpoint):
    """Saves after every `every_epochs` epochs but the last; continues where a checkpoint that is loaded ends.

    Being a Checkpoint, it is called when everything else that happens at the end of an epoch has happened.
    """

    def __init__(self, run_dir: Path, every_epochs: int, shard: Shard, journal: Journal | None) -> None:
        self._run_dir = run_dir
        self._every_epochs = every_epochs
        self._shard = shard
        self._journal = journal
        self._files = WholeFiles()
        self._random: dict[str, Any] | None = None  # The checkpoint has those of every process; these are this one's.

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        if self._every_epochs >= int(trainer.max_epochs or 0):
            raise ConfigError(
                f"checkpoint_every_epochs={self._every_epochs}: the run has {trainer.max_epochs} epochs, and after the"
                " last one there is nothing to continue; give less, or leave it out"
            )
        trainer.strategy.checkpoint_io = self._files

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        epoch = trainer.current_epoch + 1
        if epoch % self._every_epochs or epoch == trainer.max_epochs or trainer.should_stop:
            return
        if self._journal is not None:
            self._journal.event("checkpoint_start", epoch_num=epoch)
        trainer.save_checkpoint(checkpoints.path_of(self._run_dir, epoch))  # Process 0 writes, and the others wait.
        if self._journal is not None:
            failed = {"error": self._files.error} if self._files.error else {}
            if not failed:
                checkpoints.prune(self._run_dir)
            self._journal.event("checkpoint_stop", epoch_num=epoch, **failed)

    def state_dict(self) -> dict[str, Any]:
        """The random states of all processes, by rank. A collective call."""
        states: list[Any] = [None] * self._shard.world_size
        dist.all_gather_object(states, random_states(self._shard.device))
        return {"random": states}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._random = state_dict["random"][self._shard.rank]

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # Once everything is made, and before loaders are asked for their first epoch: PyTorch's own draw a seed then.
        if self._random is not None:
            set_random_states(self._random, self._shard.device)


def random_states(device: torch.device) -> dict[str, Any]:
    """The states of every generator that a training may draw from, in types that torch.load takes for safe."""
    numpy = np.random.get_state(legacy=False)
    assert isinstance(numpy, dict)
    states = {
        "python": random.getstate(),
        "numpy": numpy | {"state": numpy["state"] | {"key": numpy["state"]["key"].tolist()}},
        "torch": torch.get_rng_state(),
    }
    return states | ({"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {})


def set_random_states(states: dict[str, Any], device: torch.device) -> None:
    """Put back what `random_states` returned."""
    random.setstate(states["python"])
    key = np.array(states["numpy"]["state"]["key"], dtype=np.uint32)
    np.random.set_state(states["numpy"] | {"state": states["numpy"]["state"] | {"key": key}})
    torch.set_rng_state(states["torch"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)
