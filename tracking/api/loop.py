"""The context manager that tracks a user's own training loop."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from conf.schema import ConfigError
from tracking.analysis.results import UNCOUNTED_TAG
from tracking.api.machines import Nodes, SharedTarget, check_group, device_of, nodes_of, take_fingerprint
from tracking.api.options import TrainingSetup, TrialOptions, checked, script_seed
from tracking.api.samples import decimal
from tracking.api.script_arguments import MetricNames, sample_count
from tracking.api.script_run import ScriptRun, write_failure
from tracking.base import quantities
from tracking.measure.programs import EvaluationInterval
from tracking.measure.steps import batches, optimizer_steps
from tracking.measure.training import Meter, Ranks, summary
from tracking.record import journal

CONTINUED = "goes on from an earlier fit or a checkpoint"  # so a run is only a part of the training
RATE_KEYS = (quantities.THROUGHPUT_SAMPLES_PER_SEC, quantities.ENERGY_JOULES_PER_SAMPLE)


class Trial:
    """The object that `time_trial` yields. Every process of a process group has one, and all call the same methods."""

    def __init__(self, meter: Meter, options: TrialOptions, run: ScriptRun | None) -> None:
        self._meter = meter
        self._run = run  # None except in the first process
        self._options = options
        self._names = MetricNames(options.names)
        self._num_steps = 0  # steps since the last evaluation
        self._evaluating = False
        self._evaluations = EvaluationInterval()
        self._last_was_within_epoch = False  # whether the last evaluation was within an epoch, as far as the loop tells
        self._num_epochs = 1
        self._num_trained = 0  # stretches of steps that have ended, each at an evaluation
        self._target = SharedTarget(options.target)
        self.knows_epochs = True  # whether the loop tells the epoch of each evaluation
        self.evaluated_each_epoch = True  # whether every two evaluations were one epoch apart

    def step(self, num_samples: int, loss: torch.Tensor | float | None = None) -> None:
        """Note a launched training step on `num_samples` samples of this process. Does not wait for the device."""
        num_samples = sample_count(num_samples, "trial.step(num_samples)")
        detached_loss = None if loss is None else torch.as_tensor(loss).detach()
        if detached_loss is not None and detached_loss.numel() != 1:
            shape = list(detached_loss.shape)
            raise ConfigError(f"trial.step(loss): has the shape {shape}. Next: give one number, such as loss.mean()")
        if not self._meter.is_open:
            self._begin_epoch()
        self._num_steps += 1
        if self._meter.step == 0:  # The wait for data is known only in a loop over a DataLoader.
            self._meter.times_waits = self._meter.is_batch_fetched
        self._meter.batch_ready(num_samples, ready_now=False)
        self._meter.step_done(None if detached_loss is None else detached_loss.clone(), self._num_steps)

    @property
    def reached(self) -> bool:
        """Whether the target is reached."""
        return self._target.reached

    @property
    def has_steps(self) -> bool:
        return self._meter.step > 0

    def note_continued(self, epochs_before: float = 0) -> None:
        """Note that this is only the rest of a training, so that no mean counts the run."""
        if self._run is not None:
            explanation = f"of this fit alone; the framework's own count was {epochs_before:g} when it began"
            tags = {UNCOUNTED_TAG: CONTINUED} | ({"epochs": explanation} if epochs_before else {})
            self._run.tags.update(tags)
            self._run.journal.tags(tags)

    def forget_samples(self) -> None:
        """Note that the numbers of samples are unknown, so the run has no rate."""
        self._meter.knows_samples = False

    @property
    def unknown_figures(self) -> tuple[str, ...]:
        """Prefixes of figures that the loop's calls leave unknown. Valid at its end, before `end_of_steps`."""
        unknown_rates = () if self._meter.knows_samples else RATE_KEYS
        if not self.knows_epochs:  # It is unknown where epochs end.
            return (*unknown_rates, quantities.EPOCHS, quantities.TIME_EPOCH_SEC)
        every_epoch = self.evaluated_each_epoch and not self._num_steps
        return unknown_rates if every_epoch else (*unknown_rates, quantities.EPOCHS_TRAINED, quantities.TIME_EPOCH_SEC)

    @property
    def params(self) -> dict[str, int]:
        """The interval between evaluations in samples, if they are within epochs. Valid at the loop's end."""
        return self._evaluations.params(0)

    def curves(self, values: Mapping[str, float]) -> None:
        """Note values of the training at its current step."""
        self._meter.metrics(dict(values))

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """A context around an evaluation, which times it. Call `evaluate` inside, at its end."""
        self.open_evaluation()
        try:
            yield
        finally:
            if self._evaluating:
                self._close_evaluation()

    def evaluate(self, metrics: Mapping[str, float], epoch: float | None = None) -> bool:
        """Note an evaluation, after `epoch` epochs if known. Returns whether the target is reached, now or before.

        In a process group the target is reached when rank 0's metrics reach it. A collective call.
        """
        if not isinstance(metrics, Mapping) or not all(isinstance(name, str) for name in metrics):
            raise ConfigError(
                f"trial.evaluate({metrics!r}): not metrics. Allowed: values by name, such as {{'accuracy': 0.95}}"
            )
        numbers = {name: decimal(value, f"trial.evaluate({{{name!r}: ...}})") for name, value in metrics.items()}
        if epoch is not None:
            epoch = decimal(epoch, "trial.evaluate(epoch)")
            epoch = int(epoch) if epoch.is_integer() else epoch
        if epoch is not None and epoch <= 0 and self._meter.step:
            raise ConfigError(
                f"trial.evaluate(epoch={epoch}): follows steps, so it is above 0. Next: count from 1, as in"
                " range(1, epochs + 1), or leave epoch out"
            )
        if not self._evaluating:
            self.open_evaluation()
        values = self._names.with_keys(numbers)
        self._meter.first_metrics = self._meter.first_metrics or values
        if self._run is not None:
            self._run.note_metrics(values, self._names)
            self._run.link()
        self.knows_epochs = self.knows_epochs and epoch is not None
        self.evaluated_each_epoch = self.evaluated_each_epoch and epoch == self._num_trained
        self._last_was_within_epoch = epoch is not None and epoch % 1 > 0
        epoch = self._num_epochs if epoch is None else epoch
        value = values.get(next(iter(self._options.target or values), ""))
        position = {"epoch_num": epoch} | ({"samples_count": self._meter.samples} if self._meter.knows_samples else {})
        self._meter.event("eval_accuracy", value, **position, step=self._meter.step, metrics=values)
        if self.knows_epochs:
            self._evaluations.note(position, 0)
        self._meter.metrics({quantities.EVAL + name: value for name, value in values.items()} | {"epoch": epoch})
        if self._target.is_first_reached_by(values, self._meter.ranks):
            self._meter.note_energy(quantities.ENERGY_TO_ACCURACY_JOULES)
        self._close_evaluation()
        return self.reached

    def _begin_epoch(self) -> None:
        self._meter.epoch_num = self._num_epochs
        self._meter.event("epoch_start", epoch_num=self._num_epochs)
        self._meter.open(after_evaluation=self._last_was_within_epoch)
        self._last_was_within_epoch = False

    def open_evaluation(self) -> None:
        """Begin an evaluation, which ends at `evaluate`."""
        if self._evaluating:
            return
        self.end_of_steps()
        self._meter.event("eval_start", epoch_num=self._num_epochs)
        self._evaluating = True

    def _close_evaluation(self) -> None:
        self._meter.event("eval_stop", epoch_num=self._num_epochs)
        self._evaluating = False
        self._num_epochs += 1
        self._begin_epoch()  # The time until the next step counts as training.

    def end_of_steps(self) -> None:
        """Read the windows so far, and end the epoch if it had steps."""
        if not self._meter.is_open:
            return
        samples = self._meter.close()
        if self._num_steps:
            self._num_trained += 1
            self._meter.event("epoch_stop", epoch_num=self._num_epochs, samples=samples)
        self._num_steps = 0


@contextmanager
def time_trial(
    target: Mapping[str, float | str] | None = None, *, name: str = "loop", dataset: str = "own",
    experiment: str | None = None, uri: str | None = None, runs_dir: str = "runs", log_every_n_steps: int = 50,
    price_per_hour: float | None = None, offline: bool = False, device: torch.device | str | None = None,
    precision: str | None = None, batch_size: int | None = None,
    params: Mapping[str, journal.Scalar] | None = None, system_metrics_interval_sec: float = 2.0,
    metrics: Mapping[str, str] | None = None,
) -> Iterator[Trial]:  # fmt: skip
    """Make a run of the training inside: call `trial.step(num_samples)` after each step, `trial.evaluate({...})` after
    each evaluation. The clock starts when the context is entered.

    `metrics` declares the direction of metrics without a target: {"loss": "lower"}. `device` is the device that trains;
    default: the current GPU, else the CPU. Raises ConfigError for a wrong argument, and passes on exceptions from
    inside, which become the run's failure.
    """
    options = checked(
        TrialOptions(
            {} if target is None else target, name, dataset, experiment, uri, runs_dir, log_every_n_steps, True,
            price_per_hour, offline, params or {}, system_metrics_interval_sec, metrics or {},
        )
    )  # fmt: skip
    called_at, pid = time.monotonic(), os.getpid()
    training_device = device_of(device)
    check_group()
    ranks = Ranks.connect()
    is_rank_0 = ranks.size == 1 or dist.get_rank() == 0
    nodes = nodes_of(ranks, training_device)
    run = start_run(options, training_device, nodes, precision, batch_size, called_at) if is_rank_0 else None
    meter = Meter(training_device, ranks, run.journal if run else None, log_every_n_steps)
    trial = Trial(meter, options, run)
    folder = ranks.broadcast(str(run.folder) if run else "")
    nodes.sample_others(folder, lambda: take_fingerprint(training_device, nodes), ranks, run.journal if run else None)
    try:
        meter.start()
        trial._begin_epoch()
        with batches(meter.batch_fetched), optimizer_steps(meter.update_begins):
            yield trial
        finish_loop(trial, meter, run, options)
    except BaseException as error:
        if run is not None:
            run.fail(error)
        elif os.getpid() == pid:
            write_failure(Path(folder), error, dist.get_rank())
        raise


def start_run(
    options: TrialOptions, device: torch.device, nodes: Nodes, precision: str | None, batch_size: int | None,
    called_at: float,
) -> ScriptRun:  # fmt: skip
    num_nodes, devices = len(nodes.names), nodes.processes_here
    setup = TrainingSetup(
        options.name or "loop", device.type == "cuda", num_nodes, devices, precision, batch_size, seed=script_seed()
    )
    tags = {"clock": "script", "samples": "given"}
    run = ScriptRun(options, setup, take_fingerprint(device, nodes), tags, called_at)
    run.node_by_rank = nodes.node_by_rank
    run.link()
    return run


def finish_loop(trial: Trial, meter: Meter, run: ScriptRun | None, options: TrialOptions) -> None:
    """Compute and write the figures at the end of a loop. A collective call."""
    unknown_figures = trial.unknown_figures
    trial.end_of_steps()
    meter.note_energy(quantities.ENERGY_JOULES)
    meter.end()
    meter.event("run_stop", status="success" if trial.reached or not options.target else "aborted")
    if run is not None:
        if trial.params:
            run.journal.params(dict(trial.params))
        measured: dict[str, Any] = summary.device_figures(run.config, meter, None, run.environment.get("env.gpu", ""))
        run.finish(meter, measured, unknown_figures)
    elif torch.cuda.is_initialized():
        meter.ranks.largest(torch.cuda.max_memory_allocated())  # Rank 0 joins in `summary.device_figures`.
