"""The callback that tracks a user's Lightning training. It changes only `should_stop`."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from conf.schema import ConfigError
from tracking.analysis.results import UNCOUNTED_TAG
from tracking.api import script
from tracking.api.loop import CONTINUED, RATE_KEYS
from tracking.api.machines import SharedTarget, nodes_of
from tracking.api.options import TrialOptions, checked, checked_counter
from tracking.api.samples import decimal, first_dimension, known_batches, loss_of, processes_per_batch
from tracking.api.script_arguments import MetricNames, sample_count
from tracking.api.script_run import ScriptRun, write_failure
from tracking.api.trained_epochs import Epochs
from tracking.api.training_setup import Callback, setup_of
from tracking.base import quantities
from tracking.machine.environment import Collector, fingerprint
from tracking.measure.steps import rank_parts
from tracking.measure.training import Meter, Ranks, summary
from tracking.record import journal

if TYPE_CHECKING:
    import pytorch_lightning as pl

# The callback that timed each trained module last.
LAST_CALLBACK: weakref.WeakKeyDictionary[pl.LightningModule, weakref.ref[TimeTrial]] = weakref.WeakKeyDictionary()


class TimeTrial(Callback):
    """Makes a run of every `trainer.fit`: clock, throughput, fingerprint, system metrics, MLflow.

    `target` maps metrics of `trainer.callback_metrics` to their targets: 0.9, or "<=3.28" if lower is better; all must
    be reached. `metrics` declares the direction of other metrics: {"val_loss": "lower"}. `samples` counts a batch's
    samples; default: the size of the first dimension of the first tensor in it. The clock starts before the first
    batch is fetched, so warm-up and compilation in the first steps are on the clock. `params` become params of the run
    in MLflow.

    Raises ConfigError for a wrong argument.
    """

    def __init__(
        self, target: Mapping[str, float | str] | None = None, *, name: str | None = None, dataset: str = "own",
        experiment: str | None = None, uri: str | None = None, runs_dir: str = "runs",
        samples: Callable[[Any], int] | None = None, log_every_n_steps: int = 50, stop_at_target: bool = True,
        price_per_hour: float | None = None, offline: bool = False, params: Mapping[str, journal.Scalar] | None = None,
        system_metrics_interval_sec: float = 2.0, metrics: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self._options = checked(
            TrialOptions(
                {} if target is None else target, name, dataset, experiment, uri, runs_dir, log_every_n_steps,
                stop_at_target, price_per_hour, offline, params or {}, system_metrics_interval_sec, metrics or {},
            )
        )  # fmt: skip
        self._names = MetricNames(self._options.names)
        self._samples = checked_counter(samples)
        self._collector: Collector | None = None
        self._run: ScriptRun | None = None  # None except in rank 0
        self._meter: Meter | None = None
        self._folder = ""
        self._pid = 0  # the training process
        self._called_at = 0.0  # monotonic time at which the script called the training
        self._target = SharedTarget(self._options.target)
        self._epoch_samples = 0
        self._in_epoch = False
        self._epochs: Epochs | None = None

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        if sum(isinstance(callback, TimeTrial) for callback in trainer.callbacks) > 1:  # type: ignore[attr-defined]
            raise ConfigError("callbacks: two TimeTrials would disturb each other's clock. Next: give one")
        self._pid, self._called_at = os.getpid(), time.monotonic()
        if stage == "fit" and trainer.local_rank == 0:
            self._collector = Collector(repository=script.folder())  # Its commands run during the setup.

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        ranks = Ranks.connect()
        nodes = nodes_of(ranks)
        if trainer.global_rank == 0:
            self._run = self._start_run(trainer, pl_module)
            self._run.node_by_rank = nodes.node_by_rank
            self._run.link(trainer.loggers)
        self._folder = ranks.broadcast(str(self._run.folder) if self._run else "")
        run_journal = self._run.journal if self._run else None
        nodes.sample_others(self._folder, lambda: self._take_fingerprint(trainer), ranks, run_journal)
        self._meter = Meter(trainer.strategy.root_device, ranks, run_journal, self._options.log_every_n_steps)
        self._meter.is_ddp = rank_parts.is_ddp(trainer)
        self._target, self._epoch_samples, self._in_epoch = SharedTarget(self._options.target), 0, False
        self._epochs, self._names = Epochs(trainer), MetricNames(self._options.names)
        num_batches = known_batches(trainer.num_training_batches)
        self._meter.start(max_epochs=self._epochs.planned(trainer), num_batches=num_batches)

    def _start_run(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> ScriptRun:
        setup, facts = setup_of(trainer, pl_module), self._take_fingerprint(trainer)
        sharing = (
            "" if setup.processes_per_batch == 1 else f", once for {setup.processes_per_batch} processes that share it"
        )
        samples_source = "given" if self._samples else "first dimension of the batch"
        tags = {"clock": "script", "samples": samples_source + sharing}
        if trainer.global_step or continues_training(self, pl_module):  # This fit is only a part of the training.
            tags[UNCOUNTED_TAG] = CONTINUED
        return ScriptRun(self._options, setup, facts, tags, self._called_at)

    def _take_fingerprint(self, trainer: pl.Trainer) -> fingerprint.Fingerprint:
        collector, self._collector = self._collector or Collector(repository=script.folder()), None
        return collector.finish(torch, trainer.device_ids if trainer.strategy.root_device.type == "cuda" else [])

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._meter is not None:
            self._begin_epoch(trainer)

    def _begin_epoch(self, trainer: pl.Trainer) -> None:
        assert self._meter is not None
        assert self._epochs is not None
        self._in_epoch = True
        self._meter.epoch_num = self._epochs.number(trainer)
        self._meter.event("epoch_start", epoch_num=self._meter.epoch_num)
        self._meter.open()

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self._meter is None:
            return
        if self._epochs is not None and not self._epochs.began:
            self._epochs.note_first_batch(trainer)
            if self._run is not None and (tags := self._epochs.tags()):
                self._run.journal.tags(tags)
        if not self._in_epoch:  # Lightning does not announce an epoch that continues from a checkpoint.
            self._begin_epoch(trainer)
        if not self._meter.is_open:  # after an evaluation within the epoch
            self._meter.open(after_evaluation=True)
        size = first_dimension(batch) if self._samples is None else self._samples(batch)
        self._meter.knows_samples = self._meter.knows_samples and size is not None
        # If several processes train on the same batch, only the first counts it.
        counts = trainer.global_rank % processes_per_batch(trainer.strategy, trainer.world_size) == 0
        is_counted = counts and size is not None
        self._meter.batch_ready(sample_count(size, "what samples= returned for a batch") if is_counted else 0)

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        if self._meter is not None:
            self._meter.update_begins(optimizer)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._meter is not None:
            self._meter.step_done(loss_of(outputs), batch_idx + 1)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._meter is None or trainer.sanity_checking:
            return
        self._close_windows(trainer, trainer.fit_loop.epoch_loop.batch_progress.is_last_batch)
        self._meter.event("eval_start", **self._trained_epochs(trainer))

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._meter is not None and not trainer.sanity_checking:
            self._record_evaluation(trainer)
            self._meter.event("eval_stop", **self._trained_epochs(trainer))

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._meter is None:
            return
        # The epoch is still open if it had no evaluation at its end, or ends early (target, max_steps).
        if self._in_epoch:
            self._close_windows(trainer, True)
            # Without validation, the training's own metrics count.
            if not sum(map(known_batches, trainer.num_val_batches)):
                self._record_evaluation(trainer)

    def _close_windows(self, trainer: pl.Trainer, at_end: bool) -> None:
        """Read the windows before an evaluation, and end the epoch if the evaluation is `at_end`."""
        assert self._meter is not None
        assert self._epochs is not None
        if self._meter.is_open:
            self._epoch_samples += self._meter.close()
        if not (at_end and self._in_epoch):
            return
        samples = self._epoch_samples if self._meter.knows_samples else None
        trained_fraction = self._epochs.trained_fraction(trainer)
        self._meter.event("epoch_stop", epoch_num=self._epochs.number(trainer), samples=samples, **trained_fraction)
        self._epoch_samples, self._in_epoch = 0, False

    def _record_evaluation(self, trainer: pl.Trainer) -> None:
        assert self._meter is not None
        scalars = {name: value for name, value in trainer.callback_metrics.items() if value.numel() == 1}
        metrics = {key: decimal(value) for key, value in self._names.with_keys(scalars).items()}
        self._meter.first_metrics = self._meter.first_metrics or metrics
        if self._run is not None:
            self._run.note_metrics(metrics, self._names)
            self._run.link(trainer.loggers)
        epoch, targets = self._trained_epochs(trainer), self._options.target
        value = metrics.get(next(iter(targets or metrics), ""))
        samples = {"samples_count": self._meter.samples} if self._meter.knows_samples else {}
        self._meter.event("eval_accuracy", value, **epoch, **samples, step=self._meter.step, metrics=metrics)
        curves = {quantities.EVAL + name: value for name, value in metrics.items()}
        self._meter.metrics(curves | ({"epoch": epoch["epoch_num"]} if epoch else {}))
        if self._target.is_first_reached_by(metrics, self._meter.ranks):
            self._meter.note_energy(quantities.ENERGY_TO_ACCURACY_JOULES)
            trainer.should_stop = trainer.should_stop or self._options.stop_at_target

    def _trained_epochs(self, trainer: pl.Trainer) -> dict[str, float]:
        assert self._epochs is not None
        epoch = self._epochs.trained(trainer)
        return {} if epoch is None else {"epoch_num": epoch}

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        meter, self._meter = self._meter, None
        if meter is None:
            return
        LAST_CALLBACK[pl_module] = weakref.ref(self)
        meter.note_energy(quantities.ENERGY_JOULES)
        meter.end()
        targets = self._options.target
        meter.event("run_stop", status="success" if self._target.reached or not targets else "aborted")
        unknown_figures = () if meter.knows_samples else RATE_KEYS
        if self._run is not None:
            gpu = self._run.environment.get("env.gpu", "")
            measured = summary.device_figures(self._run.config, meter, None, gpu)
            self._run.finish(meter, measured, unknown_figures)
        elif trainer.strategy.root_device.type == "cuda":
            meter.ranks.largest(torch.cuda.max_memory_allocated())  # Rank 0 joins in `summary.device_figures`.
        self._run, self._folder = None, ""

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        if os.getpid() != self._pid:  # a forked child of the script
            return
        if self._meter is not None and self._meter.step:
            LAST_CALLBACK[pl_module] = weakref.ref(self)
        self._meter = None
        if self._run is not None:
            self._run.fail(exception)
        elif self._folder:
            write_failure(Path(self._folder), exception, trainer.global_rank)
        elif trainer.global_rank == 0 and self._collector is not None and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            with suppress(ConfigError):  # The user's exception matters more than one from recording it.
                self._start_run(trainer, pl_module).fail(exception)  # It failed before the training began.
        self._run, self._folder = None, ""


def continues_training(trial: TimeTrial, pl_module: pl.LightningModule) -> bool:
    """Whether this callback has timed a training of this module before. A new Trainer counts from 0 again."""
    return pl_module in LAST_CALLBACK and LAST_CALLBACK[pl_module]() is trial
