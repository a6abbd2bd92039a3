"""The measuring Lightning callback: it keeps the clock, times windows of steps, and stops at the target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl
import torch

from conf.schema import RunConfig
from tracking.base import quantities
from tracking.measure.steps import nvtx_ranges, rank_parts
from tracking.measure.training.exchange import ExchangeTimer
from tracking.measure.training.logged import LoggedValues
from tracking.measure.training.meter import Meter
from tracking.measure.training.ranks import Ranks
from tracking.record import Journal, attempts


class MeasuringCallback(pl.Callback):
    """Measures one run. Every rank has a callback; rank 0's has the journal.

    `prepare(trainer)` compiles and warms up before the clock starts. `conclude(trainer)` runs after the clock stops,
    while the model is still on its device. `after_evaluation(trainer, module, metrics)` runs once an evaluation's value
    is in the journal, and counts as part of the evaluation. `meter` measures; `logged` holds what the module logs.
    """

    def __init__(
        self,
        config: RunConfig,
        device: torch.device,
        journal: Journal | None,
        prepare: Callable[[pl.Trainer], None],
        conclude: Callable[[pl.Trainer], None],
        after_evaluation: Callable[[pl.Trainer, Any, dict[str, float]], None] | None = None,
    ) -> None:
        self._config = config
        self._targets = config.targets()
        self._journal = journal
        self._prepare = prepare
        self._conclude = conclude
        self._after_evaluation = after_evaluation
        self.logged = LoggedValues(device, config.world_size(), has_journal=journal is not None)
        ranks, steps = Ranks(config.world_size()), config.log_every_n_steps
        self.meter = Meter(device, ranks, journal, steps, self.logged, divergence_advice(config))
        self.meter.ranges = nvtx_ranges(config.profile.nvtx)
        self._target_reached = self._in_epoch = False
        self._epoch_samples = 0
        self._next_state: dict[str, Any] = {}  # state of all processes for the next checkpoint

    @property
    def state_key(self) -> str:
        """The key of the state in a checkpoint: the class's former name, so that old checkpoints still load."""
        return "TrialCallback"

    def gather_state(self) -> None:
        """Gather the state of all processes for the next `state_dict`. A collective call.

        Call it before the rest of a checkpoint is made: that may fail on one process alone.
        """
        if not self._in_epoch:
            self.meter.note_logged()  # a run that resumes from here does not log it again
        samples = self._epoch_samples + (self.meter.section_samples() if self._in_epoch else 0)
        self._next_state = self.meter.state_dict() | {"reached": self._target_reached, "epoch_samples": samples}

    def state_dict(self) -> dict[str, Any]:
        """The state that Lightning saves in a checkpoint. A collective call, unless right after `gather_state`."""
        if not self._next_state:
            self.gather_state()
        state, self._next_state = self._next_state, {}
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._target_reached, self._epoch_samples = state_dict["reached"], state_dict.get("epoch_samples", 0)
        self.meter.load_state_dict(state_dict)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._journal is not None:  # only the trainer knows these
            optimizer = type(trainer.optimizers[0]).__name__.lower()
            self._journal.params(
                {
                    "max_epochs": trainer.max_epochs,
                    "optimizer/name": optimizer,
                    "optimizer/learning_rate": self._config.learning_rate(),
                }
            )
        if isinstance(exchange := getattr(trainer.strategy, "exchange", None), ExchangeTimer):
            exchange.ranges = self.meter.ranges
        self.meter.event("trainer_stop")
        self.meter.event("warmup_start")
        pl_module.logged = self.logged  # type: ignore[assignment]  # a TrialModule
        self._prepare(trainer)
        self.meter.event("warmup_stop")
        self.meter.is_ddp = rank_parts.is_ddp(trainer)
        self.meter.start(max_epochs=trainer.max_epochs, num_batches=int(trainer.num_training_batches))
        self.logged.recording = True
        if trainer.fit_loop.restarted_mid_epoch:  # Lightning calls no hook when an epoch continues
            self._begin_epoch(trainer, self._epoch_samples)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.meter.note_logged()  # the module's own on_train_epoch_end comes after ours
        self._begin_epoch(trainer)

    def _begin_epoch(self, trainer: pl.Trainer, samples: int = 0) -> None:
        self.meter.epoch_num = trainer.current_epoch + 1
        self.meter.event("epoch_start", epoch_num=trainer.current_epoch + 1)
        self._in_epoch, self._epoch_samples = True, samples
        self.meter.open()

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if isinstance(epochs_trained(trainer), int):
            self._close_epoch(trainer)
        else:
            self._epoch_samples += self.meter.close()
            self.meter.note_logged(within_epoch=True)
        self.meter.event("eval_start", **self._progress(trainer))

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        metrics: dict[str, float] = pl_module.metrics()  # type: ignore[operator]  # a TrialModule
        self.meter.first_metrics = self.meter.first_metrics or metrics
        progress = self._progress(trainer)
        value = metrics.get(next(iter(self._config.model.metrics), ""))
        self.meter.event("eval_accuracy", value, **progress, step=self.meter.step, metrics=metrics)
        curves = {quantities.EVAL + name: value for name, value in metrics.items()}
        self.meter.metrics(curves | {quantities.EPOCH: progress["epoch_num"]})
        if self._after_evaluation is not None:  # after the curve, since it takes seconds
            self._after_evaluation(trainer, pl_module, metrics)
        if not self._target_reached and attempts.reached(metrics, self._targets):
            self._target_reached = True
            self.meter.note_energy(quantities.ENERGY_TO_ACCURACY_JOULES)
            trainer.should_stop |= self._config.stop_at_target  # |=: it may have stopped already
        self.meter.note_logged(within_epoch=self._in_epoch)
        self.meter.event("eval_stop", **progress)
        if self._in_epoch and not trainer.should_stop:
            self.meter.open(after_evaluation=True)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._in_epoch:  # an evaluation at the epoch's end has closed it already
            self._close_epoch(trainer)

    def _close_epoch(self, trainer: pl.Trainer) -> None:
        if self.meter.is_open:
            self._epoch_samples += self.meter.close()
        epoch_fraction = epochs_trained(trainer) - trainer.current_epoch
        part = {} if epoch_fraction == 1 else {"part": round(epoch_fraction, 6)}
        self.meter.event("epoch_stop", epoch_num=trainer.current_epoch + 1, samples=self._epoch_samples, **part)
        self.meter.note_logged()
        self._in_epoch = False

    def _progress(self, trainer: pl.Trainer) -> dict[str, float]:
        """The progress of the training in MLPerf's keys; `epoch_num` is a fraction within an epoch."""
        return {"epoch_num": epochs_trained(trainer), "samples_count": self.meter.samples}

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.meter.note_energy(quantities.ENERGY_JOULES)
        self.meter.end()
        self.meter.event("run_stop", status="success" if self._target_reached or not self._targets else "aborted")
        self.meter.note_logged()
        self.logged.recording = False
        self._conclude(trainer)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: dict[str, Any], batch_idx: int
    ) -> None:
        self.meter.batch_ready(batch["num_samples"], batch.get("num_tokens", ()))

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        self.meter.update_begins(optimizer)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: dict[str, Any], batch_idx: int
    ) -> None:
        loss = outputs["loss"]  # copied by Lightning only with automatic optimization
        self.meter.step_done(loss if pl_module.automatic_optimization else loss.detach().clone(), batch_idx + 1)


def epochs_trained(trainer: pl.Trainer) -> int | float:
    """The epochs trained so far; an int at the end of an epoch, even before Lightning counts it."""
    num_started, num_batches = trainer.fit_loop.epoch_loop.batch_progress.current.ready, trainer.num_training_batches
    if num_started >= num_batches:
        return trainer.current_epoch + 1
    return round(trainer.current_epoch + num_started / num_batches, 6)


def divergence_advice(config: RunConfig) -> str:
    """Advice for a loss that is not finite."""
    advice = (
        f"The learning rate, here up to {config.learning_rate():g}, is probably too high. Next: give a lower"
        " model.optimizer.lr or another model.optimizer.lr_scaling"
    )
    if config.precision.name != "fp16":
        return advice
    return f"{advice}; if a value exceeds fp16's largest, 65,504, give precision=bf16, or fp32 on a GPU without bf16"
