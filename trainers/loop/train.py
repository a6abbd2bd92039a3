"""Train one workload to its target and measure it. `train` reads from top to bottom."""

from __future__ import annotations

import gc
import logging
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import pytorch_lightning as pl
import torch.distributed as dist
from pytorch_lightning.profilers import PassThroughProfiler
from pytorch_lightning.strategies import SingleDeviceStrategy, Strategy

from conf.schema import RunConfig
from tracking.measure.training import EvaluationPlan, MeasuringCallback, summary, throughput
from tracking.record import Journal, attempts, checkpoints, journal, node_records, part_of_start, run_folder
from trainers.data.loading.position import with_epochs
from trainers.loop import ddp, evaluation_times, saving, trained_model
from trainers.loop.batch_size import checked_train_samples, num_eval_samples
from trainers.loop.build import build
from trainers.loop.early_compilers import EarlyCompilers
from trainers.loop.kernel_profile import profile_at_the_end
from trainers.loop.off_the_clock import OffTheClock, warn_on_failure
from trainers.loop.process_group import Communicator, join_and_log
from trainers.loop.saving import CheckpointCallback
from trainers.loop.trained_model import BestWeights, best_weights, save, whole_weights
from trainers.loop.warmup.compile_first import OUR_OWN
from trainers.workload import Data, Loader, Shard, TrialModule, load_workload

logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)


def train(config: RunConfig, run_dir: Path, environment: Mapping[str, str]) -> None:
    """Train this process's share of a run; torchrun has set RANK, WORLD_SIZE and the rendezvous.

    `environment` holds the tags of the fingerprint. Rank 0 writes result.json. Raises ConfigError for a request that
    cannot be run, NonFiniteLoss, torch.OutOfMemoryError, and whatever the workload raises.
    """
    shard, log = join_and_log(config, run_dir)
    exchange = strategy(config, shard, environment, log)
    nccl = Communicator(shard, log, early=communicates_early(config, exchange))
    with part_of_start(log, "import"):
        workload = load_workload(config)
    trained_model.check_predictor(config, workload.module)  # Refuse before the data, which may take minutes.
    early = EarlyCompilers(config, run_dir, shard)
    module, data = build(workload, config, shard, log, early)
    trained_model.check_predictor(config, type(module))
    train_loader, eval_loader, test_loader = loaders(data, config, shard, log)
    num_train = checked_train_samples(data, config, shard)
    evaluates = eval_loader is not None
    plan = evaluation_times.plan_of(config, data, train_loader, num_train, module, evaluates)
    interval = saving.interval_of(config, plan.max_epochs, plan.num_steps, train_loader)
    if log:
        log.event("trainer_start")  # This part of the start lasts until the warm-up.
        log.event("train_samples", num_train)
        log.event("eval_samples", num_eval_samples(data, shard))
        evaluation_times.note(log, plan)
    best = best_weights(config, holds=shard.rank == 0, evaluates=evaluates)
    off_the_clock = OffTheClock(config, run_dir, shard, log, module, data, best, test_loader, evaluates, early, nccl)
    saver = CheckpointCallback(run_dir, interval, shard, log, train_loader)

    def conclude(trainer: pl.Trainer) -> None:
        saver.finish()  # The result says how the last checkpoint ended.
        off_the_clock.conclude(trainer)
        write_result(config, run_dir, log, callback, off_the_clock, environment.get("env.gpu", ""), workload.unit)
        if config.profiled():  # By now the result is complete, so tracing cannot change a figure.
            profile_at_the_end(config, trainer, module, train_loader, shard.rank, log, run_dir)

    preparing, after_evaluation = partial(prepare, off_the_clock, saver), best.evaluated if best else None
    callback = MeasuringCallback(config, shard.device, log, preparing, conclude, after_evaluation)
    trainer = make_trainer(config, exchange, plan, callback, evaluates)
    # A barebones Trainer refuses these callbacks in its constructor, so they are added afterwards.
    trainer.callbacks += [*([best] if best else []), *([saver] if interval else [])]  # type: ignore[attr-defined]
    fit_loaders = with_epochs(train_loader), with_epochs(eval_loader)
    trainer.fit(module, *fit_loaders, ckpt_path=checkpoint_to_resume(run_dir, callback), weights_only=True)
    keep_model(config, run_dir, log, module, data, best, environment)
    dist.destroy_process_group()


def prepare(off_the_clock: OffTheClock, saver: CheckpointCallback, trainer: pl.Trainer) -> None:
    """Do what comes before the clock. Raises ConfigError if a resumed run's data have changed.

    Python's garbage collection then skips all that exists: a full one took 1.4 s of Mask R-CNN's training.
    """
    config = off_the_clock.config
    if off_the_clock.log and (config.checkpoint_every_epochs or config.checkpoint_every_steps):
        saving.keep_to_version(off_the_clock.data, off_the_clock.run_dir, off_the_clock.log)
    off_the_clock.prepare(trainer)
    saver.make_room(off_the_clock.module, off_the_clock.optimizer_bytes)
    gc.collect()
    gc.freeze()


def loaders(
    data: Data, config: RunConfig, shard: Shard, log: Journal | None
) -> tuple[Loader, Loader | None, Loader | None]:
    """Return the loaders of training, evaluation and test; the last two are None without such data."""
    batch_size = config.device_batch_size()
    with part_of_start(log, "loaders"):
        return (
            data.train_loader(batch_size, config.seed, shard),
            data.eval_loader(batch_size, shard),
            data.test_loader(batch_size, shard),
        )


def strategy(config: RunConfig, shard: Shard, environment: Mapping[str, str], log: Journal | None) -> Strategy:
    """Return the strategy that exchanges gradients: not at all, during the backward pass, or after it."""
    if config.sharded():
        from trainers.loop import fsdp

        if log:
            log.tags({"strategy": config.strategy})
        return fsdp.Sharded()
    if shard.world_size == 1:
        return SingleDeviceStrategy(shard.device)
    overlap = ddp.overlaps(config.overlap_grad_reduce, environment.get("env.topology", ""), config.nodes)
    if log:
        log.tags({"overlap_grad_reduce": str(overlap).lower()})
    return ddp.Overlapped() if overlap else ddp.AfterTheStep()


def communicates_early(config: RunConfig, strategy: Strategy) -> bool:
    """Return whether building the module, or Lightning's setup, may already communicate between GPUs."""
    ours = config.model.workload.startswith(OUR_OWN)
    return not ours or config.sharded() or isinstance(strategy, ddp.Overlapped)


def make_trainer(
    config: RunConfig, strategy: Strategy, plan: EvaluationPlan, callback: MeasuringCallback, evaluates: bool
) -> pl.Trainer:
    """Return a Trainer that does only what training needs on the timed path."""
    if not evaluates:
        warnings.filterwarnings("ignore", ".*have no `val_dataloader`")  # These data have nothing to evaluate on.
    # Checkpoints within an epoch are saved only if the loader can skip the trained batches (Positionable).
    warnings.filterwarnings("ignore", "You're resuming from a checkpoint that ended before the epoch ended")
    trainer = pl.Trainer(
        strategy=strategy,
        devices=1,  # Each process sees only its own GPU (worker/rank.py), so each counts as a node.
        num_nodes=config.world_size(),
        accelerator="gpu" if config.on_gpu() else "cpu",
        precision=config.precision.trainer,  # type: ignore[arg-type]
        max_epochs=plan.max_epochs,
        limit_train_batches=plan.num_batches,
        limit_val_batches=None if evaluates else 0,
        callbacks=[callback],
        inference_mode=False,  # The warm-up runs without it; with it, evaluation would compile again on the clock.
        barebones=True,  # Keeps logger, progress bar and sanity check off the timed path.
        use_distributed_sampler=False,  # The loaders already give each process its share, without duplicates.
    )
    evaluation_times.follow(trainer, plan)
    trainer.profiler = NoProfiler()  # type: ignore[attr-defined]
    # Before every step, Lightning asks all processes whether one got SIGTERM, and waits for the device to answer.
    # Here the agent sends SIGTERM to all of them.
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]
    # Lightning's handler waits for the end of the batch, then exits with 0. Once a peer has died, that end never comes.
    trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
    return trainer


class NoProfiler(PassThroughProfiler):
    """A profiler that does nothing, with one shared context: Lightning enters one 46 times a step."""

    _nothing: AbstractContextManager[None] = nullcontext()

    def profile(self, action_name: str) -> AbstractContextManager[None]:  # type: ignore[override]
        return self._nothing


def checkpoint_to_resume(run_dir: Path, callback: MeasuringCallback) -> Path | None:
    """Return the checkpoint of a resumed run, else None, and give the callback the windows measured before."""
    events = journal.events(run_dir / run_folder.JOURNAL)
    resume = attempts.newest_resume(events)
    if resume is None:
        return None
    callback.meter.windows += throughput.read_windows(attempts.history(events))
    return run_dir / resume.values["checkpoint"] if resume.values["checkpoint"] else None


def write_result(
    config: RunConfig, run_dir: Path, log: Journal | None, callback: MeasuringCallback, off_the_clock: OffTheClock,
    gpu: str, unit: str,
) -> None:  # fmt: skip
    """Summarize the measurements; rank 0 writes them as the run's result. A collective call."""
    meter = callback.meter
    measured = summary.device_figures(config, meter, off_the_clock.flops_per_sample, gpu)
    spread = summary.steps_by_node(meter.windows, meter.ranks.gather_texts(node_records.name()))
    if log:
        summary.write(config, run_dir, log, meter.windows, measured | off_the_clock.test_metrics, unit, by_node=spread)


def keep_model(
    config: RunConfig, run_dir: Path, log: Journal | None, module: TrialModule, data: Data, best: BestWeights | None,
    environment: Mapping[str, str],
) -> None:  # fmt: skip
    """Remove the checkpoints; write what save_model and log_model ask for. The result exists, so errors only warn.

    A collective call: rank 0 writes.
    """
    weights = whole_weights(module, log is not None) if config.save_model == "final" else {}
    if log is None:
        return
    checkpoints.remove(run_dir)
    if config.save_model != "none":
        with warn_on_failure("model"):
            save(config, run_dir, log, best, environment, weights)
    if config.log_model:
        with warn_on_failure("logged model"):
            trained_model.export(config, run_dir, log, module, data, best)
