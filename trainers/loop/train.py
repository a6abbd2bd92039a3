"""Train one workload to its target and measure it. It reads top to bottom, and alone builds a Trainer."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.profilers import PassThroughProfiler
from pytorch_lightning.strategies import SingleDeviceStrategy, Strategy

from conf.dataset_options import DatasetConfig
from conf.schema import RunConfig
from tracking.measure.training import EvaluationPlan, MeasuringCallback, node_spread, summary, throughput
from tracking.record import Journal, attempts, checkpoints, journal, node_records, run_folder
from trainers.data.loading.epoch_teller import told_epochs
from trainers.loop import ddp, evaluation_times, export_model, precision, saving
from trainers.loop.batch_size import checked_train_samples, num_eval_samples
from trainers.loop.build import make_data, make_module
from trainers.loop.kernel_profile import profile_at_the_end
from trainers.loop.off_the_clock import OffTheClock, dispensable
from trainers.loop.saving import CheckpointCallback
from trainers.loop.start import part_of_start
from trainers.loop.trained_model import BestWeights, best_weights, save, whole_weights
from trainers.workload import Data, Loader, Shard, TrialModule, Workload, load_workload, viewed

logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)


def train(config: RunConfig, run_dir: Path, environment: Mapping[str, str]) -> None:
    """Run this process's part of a training; torchrun has set RANK, WORLD_SIZE and the rendezvous.

    `environment` is the fingerprint's tags. Rank 0 leaves result.json. Raises ConfigError for a request that cannot be
    run, NonFiniteLoss, torch.OutOfMemoryError, and whatever the workload raises.
    """
    shard, log = begin(config, run_dir)
    with part_of_start(log, "import"):
        workload = load_workload(config)
    export_model.check_predictor(config, workload.module)  # early: data may take minutes
    module, data = build(workload, config, shard, log)
    export_model.check_predictor(config, type(module))
    train_loader, eval_loader, test_loader = loaders(data, config, shard, log)
    num_train = checked_train_samples(data, config, shard)
    plan = evaluation_times.plan_of(config, data, train_loader, num_train, module, eval_loader is not None)
    interval = saving.interval_of(config, plan.max_epochs, plan.num_steps, train_loader)
    if log:
        log.event("trainer_start")  # It lasts up to the warm-up.
        log.event("train_samples", num_train)
        log.event("eval_samples", num_eval_samples(data, shard))
        evaluation_times.note(log, plan)
    best = best_weights(config, holds=shard.rank == 0, evaluate=eval_loader is not None)
    unclocked = OffTheClock(config, run_dir, shard, log, module, data, best, test_loader, eval_loader is not None)
    saves = CheckpointCallback(run_dir, interval, shard, log, train_loader, lambda: unclocked.optimizer_bytes)

    def conclude(trainer: pl.Trainer) -> None:
        saves.finish()  # How the last checkpoint ended is part of the result.
        unclocked.conclude(trainer)
        write_result(config, run_dir, log, callback, unclocked, environment.get("env.gpu", ""), workload.unit)
        if config.profiled():  # The run has its result, with all its figures, by now.
            profile_at_the_end(config, trainer, module, train_loader, shard.rank, log, run_dir)

    hooks = (unclocked.prepare, conclude, best.evaluated if best else None)
    callback = MeasuringCallback(config, shard.device, log, *hooks)
    trainer = make_trainer(config, strategy(config, shard, environment, log), plan, callback, eval_loader is not None)
    # A barebones Trainer refuses these callbacks when it is made, so they are added afterwards.
    trainer.callbacks += [*([best] if best else []), *([saves] if interval else [])]  # type: ignore[attr-defined]
    told = told_epochs(train_loader), told_epochs(eval_loader)
    trainer.fit(module, *told, ckpt_path=continued(run_dir, callback), weights_only=True)

    weights = whole_weights(module, log is not None) if config.save_model == "final" else {}
    if log:
        checkpoints.remove(run_dir)
        keep_model(config, run_dir, log, module, data, best, environment, weights)
    dist.destroy_process_group()


def begin(config: RunConfig, run_dir: Path) -> tuple[Shard, Journal | None]:
    """Join the process group. Rank 0 gets the run's journal, too."""
    shard = join(config)
    if shard.rank:
        return shard, None
    log = Journal(run_dir / run_folder.JOURNAL)
    log.event("process_group_stop")  # The agent has begun it, before it started the ranks.
    return shard, log


def join(config: RunConfig) -> Shard:
    """Join the run's process group, also as its only process, and check that it has the size that was asked for.

    Lightning would make no group for one process, and would trust the environment for the world size. So the second job
    of a sweep could train half of the data and report twice the speed.
    """
    device = torch.device("cuda", 0) if config.on_gpu() else torch.device("cpu")
    if config.on_gpu():
        torch.cuda.set_device(device)
        dist.init_process_group("cpu:gloo,cuda:nccl", device_id=device)
    else:
        dist.init_process_group("gloo")
    counted = torch.ones((), device=device)
    dist.all_reduce(counted)  # the processes that are there, not those announced
    world_size = int(counted)
    assert world_size == config.world_size(), f"{world_size} processes take part; {config.world_size()} were asked for"
    return Shard(dist.get_rank(), world_size, device)


def build(workload: Workload, config: RunConfig, shard: Shard, log: Journal | None) -> tuple[TrialModule, Data]:
    """The module, with the same weights on every process, and the data as the module sees them."""
    precision.apply(config.precision)
    pl.seed_everything(config.seed, verbose=False)
    data = read_index(workload, config.dataset, log)
    with part_of_start(log, "model"):
        with torch.device("meta") if config.sharded() else nullcontext():
            module = make_module(workload, data, config)
        if config.precision.name == "fp8":
            module.use_fp8()
        if config.sharded():
            from trainers.loop import fsdp  # It takes a while, and older PyTorch lacks it.

            fsdp.shard_module(module, shard, config.precision.name)
        module.check_batch(config.device_batch_size())
        module.check_targets(config.targets())
        data = viewed(data, module)
    # From here on (augmentation, dropout) each process draws its own random numbers.
    pl.seed_everything((config.seed + (shard.rank << 20)) % 2**32, verbose=False)
    return module, data


def read_index(workload: Workload, config: DatasetConfig, log: Journal | None) -> Data:
    """The dataset. Its index is read here, and the time that this takes is a metric."""
    with part_of_start(log, "index"):
        return make_data(workload, config)


def loaders(
    data: Data, config: RunConfig, shard: Shard, log: Journal | None
) -> tuple[Loader, Loader | None, Loader | None]:
    """The loaders of training, evaluation and test; the last two are None where the data have none."""
    batch_size = config.device_batch_size()
    with part_of_start(log, "loaders"):
        return (
            data.train_loader(batch_size, config.seed, shard),
            data.eval_loader(batch_size, shard),
            data.test_loader(batch_size, shard),
        )


def strategy(config: RunConfig, shard: Shard, environment: Mapping[str, str], log: Journal | None) -> Strategy:
    """How gradients are exchanged: not at all, beside the backward pass, or after it."""
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


def make_trainer(
    config: RunConfig, strategy: Strategy, plan: EvaluationPlan, callback: MeasuringCallback, evaluate: bool
) -> pl.Trainer:
    """A Trainer that does no more on the timed path than a training needs."""
    if not evaluate:
        warnings.filterwarnings("ignore", ".*have no `val_dataloader`")  # It is left out on purpose.
    trainer = pl.Trainer(
        strategy=strategy,
        devices=1,  # Each process sees one alone (see worker/own_gpu.py), as if it had a machine of its own.
        num_nodes=config.world_size(),
        accelerator="gpu" if config.on_gpu() else "cpu",
        precision=config.precision.trainer,  # type: ignore[arg-type]
        max_epochs=plan.max_epochs,
        limit_train_batches=plan.num_batches,
        limit_val_batches=None if evaluate else 0,
        callbacks=[callback],
        inference_mode=False,  # The warm-up has no such mode; it would compile the evaluation again, on the clock.
        barebones=True,  # It keeps logger, progress bar and sanity check off the timed path.
        use_distributed_sampler=False,  # The loaders give each process its share, and every sample once.
    )
    evaluation_times.follow(trainer, plan)
    trainer.profiler = NoProfiler()  # type: ignore[attr-defined]
    # Lightning would ask all processes before every step whether one was told to stop, and wait for the device's
    # answer. Here the agent stops them all, by SIGTERM.
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]
    # Lightning's handler waits for the end of the batch, which never comes where a peer has died, and exits with 0.
    trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
    return trainer


class NoProfiler(PassThroughProfiler):
    """A profiler that does nothing, with one context for all: Lightning enters such a context 46 times a step."""

    _nothing: AbstractContextManager[None] = nullcontext()

    def profile(self, action_name: str) -> AbstractContextManager[None]:  # type: ignore[override]
        return self._nothing


def continued(run_dir: Path, callback: MeasuringCallback) -> Path | None:
    """The checkpoint that a resumed run goes on from, else None. Its callback gets the windows measured before."""
    events = journal.events(run_dir / run_folder.JOURNAL)
    resume = attempts.newest_resume(events)
    if resume is None:
        return None
    callback.meter.windows += throughput.recorded(attempts.history(events))
    return run_dir / resume.values["checkpoint"] if resume.values["checkpoint"] else None


def write_result(
    config: RunConfig, run_dir: Path, log: Journal | None, callback: MeasuringCallback, unclocked: OffTheClock,
    gpu: str, unit: str,
) -> None:  # fmt: skip
    """Summarize what was measured, and leave it as the run's result. A collective call."""
    meter = callback.meter
    measured = summary.devices(config, meter, unclocked.flops_per_sample, gpu)
    spread = node_spread.by_node(meter.windows, meter.ranks.words(node_records.name()))
    if log:
        summary.write(config, run_dir, log, meter.windows, measured | unclocked.test_metrics, unit, by_node=spread)


def keep_model(
    config: RunConfig, run_dir: Path, log: Journal, module: TrialModule, data: Data, best: BestWeights | None,
    environment: Mapping[str, str], weights: Mapping[str, Any],
) -> None:  # fmt: skip
    """Leave what was trained in the run's folder, as asked; the run has its result by now, so no error here ends it."""
    if config.save_model != "none":
        with dispensable("model"):
            save(config, run_dir, log, best, environment, weights)
    if config.log_model:
        with dispensable("logged model"):
            export_model.export(config, run_dir, log, module, data, best)
