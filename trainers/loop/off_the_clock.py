"""Prepares a training before the clock starts, and concludes it after the clock has stopped."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytorch_lightning as pl
import torch
from torch.nn.parallel import DistributedDataParallel

from conf.schema import RunConfig
from tracking.base import quantities
from tracking.measure.training import Ranks, start_times
from tracking.record import Journal
from trainers.loop import precision
from trainers.loop.batch_size import naming_the_batch_that_fits
from trainers.loop.ddp import AfterTheStep
from trainers.loop.early_compilers import EarlyCompilers
from trainers.loop.process_group import Communicator
from trainers.loop.saving import data_version
from trainers.loop.trained_model import BestWeights
from trainers.loop.warmup import (
    CapturedSteps,
    Helpers,
    captures,
    compile_alone,
    compile_first,
    compile_times,
    evaluating,
    forgotten_on_failure,
    keep_traces,
    kept_flops,
    number_of_helpers,
    warm_up,
)
from trainers.workload import Batch, Data, Loader, Recorded, Shard, TrialModule


@dataclass
class OffTheClock:
    """Prepares and concludes a training, and keeps the results of both steps. All methods are collective calls."""

    config: RunConfig
    run_dir: Path
    shard: Shard
    log: Journal | None
    module: TrialModule
    data: Data
    best: BestWeights | None
    test_loader: Loader | None
    evaluates: bool  # whether the data have something to evaluate on
    early: EarlyCompilers
    nccl: Communicator
    flops_per_sample: float | None = None  # model FLOPs; None on a CPU, and if the model has no FLOP rates
    test_metrics: dict[str, float] = field(default_factory=dict)
    optimizer_bytes: int = 0  # size of the optimizer's state after a step

    def prepare(self, trainer: pl.Trainer) -> None:
        """Check the precision, compile and warm up."""
        if self.best:
            self.best.make_room(self.module)
        config, device, module = self.config, self.shard.device, self.module
        batch_size = config.device_batch_size()
        precision.check_steps(trainer, config.precision, device)
        precision.start_momentum(trainer)
        if config.on_gpu():
            self.flops_per_sample = kept_flops(config, trainer, module, self.data.example_batches(8, device)[0]) or None
            if self.flops_per_sample is not None:
                self._note("model_flops", per_sample=self.flops_per_sample, num_devices=config.world_size())
        compiler = compile_times.so_far()
        if config.compiled():
            self._note("compiling", num_cached=compile_times.num_cached_graphs())
            keep_traces(config)
            wrapped = isinstance(trainer.strategy.model, DistributedDataParallel)
            module.captured = captures(config, module, alone=not wrapped)
            module.compile_hot_path()
        autocast = trainer.precision_plugin.train_step_context
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        fitting = naming_the_batch_that_fits(module, self.data, batch_size, device, autocast)
        with fitting, forgotten_on_failure():
            batches = self.data.example_batches(batch_size, device)
            if config.compiled():
                num_helpers = number_of_helpers(trainer, module, batches, self.evaluates)
                alone = partial(self._compile_alone, trainer, batches, num_helpers)
                compile_first.compile_in_turn(config, self.run_dir, self.shard, alone, num_helpers > 0)
                self.early.end()
            self.nccl.wait()
            if isinstance(trainer.strategy, AfterTheStep):
                trainer.strategy.share_weights()
            capture = CapturedSteps(module, autocast, scaler and scaler.scale).capture if module.captured else None
            self.optimizer_bytes = warm_up(trainer, module, batches, self.evaluates, config.targets(), capture)
        if config.compiled():
            compile_first.note_compiled(config, device)
            self._note(start_times.COMPILED_EVENT, **compile_times.since(compiler))
        if isinstance(trainer.strategy, AfterTheStep):
            trainer.strategy.exchange.clear()

    def _compile_alone(self, trainer: pl.Trainer, batches: Sequence[Batch], num_helpers: int) -> None:
        helpers = self.early.helpers or (Helpers(self.run_dir, num_helpers) if num_helpers else None)
        try:
            compile_alone(trainer, self.module, batches, self.evaluates, helpers)
        finally:
            if helpers:
                helpers.end()

    def conclude(self, trainer: pl.Trainer) -> None:
        """Evaluate on the test set, journal the exchange's time and the data's version, and plot."""
        if isinstance(trainer.strategy, AfterTheStep):
            exchange_sec = trainer.strategy.exchange.mean_sec(Ranks(self.shard.world_size))
            if exchange_sec is not None:
                self._note("gradient_exchange", mean_ms=1e3 * exchange_sec)
        if self.test_loader is not None:
            self.test_metrics |= evaluate_test(trainer, self.module, self.test_loader)
        if self.log:
            with warn_on_failure("data.version"):
                self.log.tags(data_version(self.data))
            with warn_on_failure("record of the data"):
                record(self.data, self.run_dir, self.log)
            with warn_on_failure("plots"):
                self.module.write_report(self.run_dir)

    def _note(self, key: str, **values: float) -> None:
        if self.log:
            self.log.event(key, **values)


def evaluate_test(trainer: pl.Trainer, module: TrialModule, loader: Loader) -> dict[str, float]:
    """Return the metrics on the test set. A collective call."""
    with evaluating(module), torch.no_grad():  # It restores training mode for the profile's steps.
        for index, batch in enumerate(loader):
            trainer.strategy.validation_step(batch, index)
    return {quantities.TEST + name: value for name, value in module.metrics().items()}


@contextmanager
def warn_on_failure(name: str) -> Iterator[None]:
    """Log an exception of the block as a warning: a run with a result must not fail because `name` is missing."""
    try:
        yield
    except Exception as error:
        logging.getLogger(__name__).warning("no %s: %s: %s", name, type(error).__name__, error, exc_info=True)


def record(data: Data, run_dir: Path, log: Journal) -> None:
    """Journal the facts that the data report, and write their record."""
    if isinstance(data, Recorded):
        log.tags(data.facts())
        data.write_record(run_dir)
