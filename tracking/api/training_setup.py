"""Facts about a Lightning training before it begins, and the callback class of the script's Lightning package.

Lightning comes as two packages, `pytorch_lightning` and `lightning`, with separate classes.
"""

from __future__ import annotations

import importlib
import math
import sys
from typing import TYPE_CHECKING, Any

from tracking.api.options import TrainingSetup, script_seed
from tracking.api.samples import processes_per_batch

if TYPE_CHECKING:
    import pytorch_lightning as pl
    from pytorch_lightning import Callback as Callback

LEGACY_PACKAGE, PACKAGE = "pytorch_lightning", "lightning.pytorch"


def callback_class() -> type:
    """A base class derived from Callback of each imported Lightning package: LightningCLI accepts only its own."""
    names = [name for name in (LEGACY_PACKAGE, PACKAGE) if name in sys.modules] or [LEGACY_PACKAGE]
    return type("Callback", tuple(importlib.import_module(name).Callback for name in names), {})


if not TYPE_CHECKING:
    Callback = callback_class()


def setup_of(trainer: pl.Trainer, pl_module: pl.LightningModule) -> TrainingSetup:
    optimizers = [innermost(optimizer) for optimizer in trainer.optimizers]
    loader = trainer.train_dataloader
    batch_size = getattr(loader, "batch_size", None)
    return TrainingSetup(
        model=type(pl_module).__name__,
        on_gpu=trainer.strategy.root_device.type == "cuda",
        nodes=trainer.num_nodes,
        devices=trainer.world_size // trainer.num_nodes,
        precision=str(trainer.precision),
        batch_size=batch_size if isinstance(batch_size, int) else None,
        max_epochs=trainer.max_epochs if trainer.max_epochs and trainer.max_epochs > 0 else None,
        accumulate=trainer.accumulate_grad_batches,
        optimizer=type(optimizers[0]).__name__.lower() if optimizers else None,
        learning_rate=float(optimizers[0].param_groups[0]["lr"]) if optimizers else None,
        seed=script_seed(),
        strategy=type(trainer.strategy).__name__,
        processes_per_batch=processes_per_batch(trainer.strategy, trainer.world_size),
        eval_every_batches=eval_every_batches(trainer),
    )


def eval_every_batches(trainer: pl.Trainer) -> int | None:
    """The interval between evaluations in batches (`val_check_interval`, `check_val_every_n_epoch`).

    None if it is every epoch, depends on time, or is not known, as for a stream without a length.
    """
    interval, interval_epochs, epoch_batches = (
        trainer.val_check_batch,
        trainer.check_val_every_n_epoch,
        trainer.num_training_batches,
    )
    if interval is None or not math.isfinite(interval) or not sum(trainer.num_val_batches):
        return None
    if interval_epochs is None or interval < epoch_batches:
        return int(interval)
    return int(epoch_batches) * interval_epochs if interval_epochs > 1 and math.isfinite(epoch_batches) else None


def innermost(optimizer: Any) -> Any:
    """The script's optimizer, without DeepSpeed's wrappers."""
    while type(optimizer).__module__.startswith("deepspeed.runtime."):
        optimizer = optimizer.optimizer
    return optimizer
