"""Traces some steps of the training once the clock has stopped, on every rank, with PyTorch's profiler.

The steps are the training's own: real batches, the same precision, exchange and optimizer. All that they change is put
back. How many are traced follows from a first trace of a single step, so that none grows beyond what was asked for.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import profiler
from torch.profiler import record_function

from conf.schema import RunConfig
from tracking.measure import kernels
from tracking.measure.kernels import MARK, merged_trace
from tracking.measure.training import Ranks
from tracking.record import Journal, documents
from trainers.loop.warmup import untouched
from trainers.workload import Batch, Loader, TrialModule

NUM_WARMUP = 2  # steps that are traced and dropped: the first ones pay for starting the profiler


def profile_at_the_end(
    config: RunConfig, trainer: pl.Trainer, module: TrialModule, loader: Loader, rank: int, log: Journal | None,
    run_dir: Path,
) -> None:  # fmt: skip
    """Trace the steps that were asked for; that it fails is told, and costs a run that has its result nothing."""
    said: dict[str, Any] = {}
    try:
        if log:
            log.event("profile_start")
        profile = StepProfiler(config, trainer, module, loader, rank).write(run_dir)
        said = {"num_steps": profile.num_steps, "notes": list(profile.notes)}
    except Exception as error:
        said = {"error": f"{type(error).__name__}: {error}"}
        logging.getLogger(__name__).warning("no profile", exc_info=True)
    if log:
        with suppress(OSError):  # The disk is full.
            log.event("profile_stop", **said)


@dataclass
class StepProfiler:
    """Traces steps of one rank. `write` and `record` are collective calls."""

    config: RunConfig
    trainer: pl.Trainer
    module: TrialModule
    loader: Loader
    rank: int

    def write(self, run_dir: Path) -> kernels.Profile:
        """Leave profile.json, its table and the traces in the run's folder. Raises OSError."""
        os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # It would complain of a machine without a GPU.
        with tempfile.TemporaryDirectory(prefix=kernels.SCRATCH, dir=run_dir) as scratch:
            path = Path(scratch) / "trace.json"
            with untouched(self.trainer, self.module), closing(self._endless()) as batches:
                self._record(1, batches, path)
                num_steps = self._fitting(path.stat().st_size)
                if num_steps:
                    self._record(num_steps, batches, path)
            parts = run_dir / f"{kernels.SCRATCH}parts"
            profile = self._profile(num_steps, path, parts) if num_steps else self._nothing()
            if kernels.trace_name(self.rank) in profile.traces:
                pack(path, run_dir / kernels.trace_name(self.rank))
        if self.rank == 0:
            profile = self._merged(profile, run_dir, parts)
            kernels.write(run_dir, profile)
        return profile

    def _merged(self, profile: kernels.Profile, run_dir: Path, parts: Path) -> kernels.Profile:
        """Leave one trace of all ranks, as far as it is not too large; the profile with its name."""
        if self.config.world_size() == 1 or not profile.num_steps:
            return profile
        first = [0, profile.slowest]
        order = dict.fromkeys([*first, *range(self.config.world_size())])
        limit = self.config.profile.trace_megabytes
        there = [part for rank in order if (part := parts / f"{rank}.json").exists()]
        merged = merged_trace.write(run_dir, there, limit * 1e6)
        shutil.rmtree(parts, ignore_errors=True)
        few, notes = f"{merged_trace.NAME} has {merged} of {len(order)} ranks: ", list(profile.notes)
        if merged < len(there):
            notes.append(f"{few}more are larger than trace_megabytes={limit:g}")
        if missing := len(order) - len(there):
            notes.append(f"{few}{missing} left no part, as on a full disk")
        return replace(profile, traces=[*profile.traces, merged_trace.NAME], notes=notes)

    def _fitting(self, bytes_of_a_step: int) -> int:
        """As many steps as were asked for, or fewer, whose trace is not too large on any rank."""
        fitting = int(self.config.profile.trace_megabytes * 1e6 / bytes_of_a_step)
        return min(self.config.profile.steps, -int(self._ranks.largest(-fitting)))

    def _profile(self, num_steps: int, path: Path, parts: Path) -> kernels.Profile:
        asked, limit = self.config.profile.steps, self.config.profile.trace_megabytes
        document = json.loads(path.read_bytes())
        own = kernels.summarize(kernels.parse(document)).plain()
        if self.config.world_size() > 1:
            with suppress(OSError):  # The disk is full: the merged trace lacks this rank.
                parts.mkdir(exist_ok=True)
                documents.write_json(parts / f"{self.rank}.json", merged_trace.part(document, self.rank))
        summaries = [json.loads(words) for words in self._ranks.words(json.dumps(own))]
        slowest = kernels.slowest(summaries)
        shown = sorted({0, slowest})
        few = f"{num_steps} of {asked} steps: a trace of more is larger than profile.trace_megabytes={limit:g}"
        return kernels.Profile(
            asked_steps=asked,
            num_steps=num_steps,
            slowest=slowest,
            software={"torch": torch.__version__, "cuda": torch.version.cuda},
            ranks=[
                {"rank": rank, **{key: summary[key] for key in ("step_ms", "busy_ms", "collective_ms")}}
                for rank, summary in enumerate(summaries)
            ],
            summaries={str(rank): summaries[rank] for rank in shown},
            traces=[kernels.trace_name(rank) for rank in shown],
            notes=[few] if num_steps < asked else [],
        )

    def _nothing(self) -> kernels.Profile:
        asked, limit = self.config.profile.steps, self.config.profile.trace_megabytes
        note = f"no step was traced: the trace of one is larger than profile.trace_megabytes={limit:g}; give more"
        return kernels.Profile(asked_steps=asked, num_steps=0, notes=[note])

    def _record(self, num_steps: int, batches: Iterator[Batch], path: Path) -> None:
        """Trace so many steps into a file. Nothing of the steps before or behind them is in it: the device is waited
        for at both ends."""
        activities = [profiler.ProfilerActivity.CPU]
        activities += [profiler.ProfilerActivity.CUDA] if self.module.device.type == "cuda" else []
        plan = profiler.schedule(wait=0, warmup=NUM_WARMUP, active=num_steps, repeat=1)
        # There is one cycle, so keeping the events of all only spares a warning.
        with profiler.profile(activities=activities, schedule=plan, acc_events=True) as recording:
            for number in range(1, NUM_WARMUP + num_steps + 1):
                self._step(batches)
                if number in (NUM_WARMUP, NUM_WARMUP + num_steps):
                    self._wait()
                recording.step()
        recording.export_chrome_trace(str(path))

    def _step(self, batches: Iterator[Batch]) -> None:
        with record_function(f"{MARK}data"):
            batch: Any = self.trainer.strategy.batch_to_device(next(batches))
        optimizer = self.trainer.optimizers[0]
        self.trainer.strategy.optimizer_step(optimizer, partial(self._forward_backward, optimizer, batch))

    def _forward_backward(self, optimizer: torch.optim.Optimizer, batch: Batch) -> torch.Tensor:
        with record_function(f"{MARK}forward"):
            optimizer.zero_grad()
            loss: torch.Tensor = self.trainer.strategy.training_step(batch, 0)  # type: ignore[assignment]
        with record_function(f"{MARK}backward"):
            self.trainer.strategy.backward(loss, optimizer)
        return loss.detach()

    def _endless(self) -> Generator[Batch]:
        """Batches of epochs that the training had not, however few batches they have."""
        epoch = self.trainer.current_epoch
        while True:
            epoch += 1
            self.loader.set_epoch(epoch)
            yield from self.loader

    def _wait(self) -> None:
        if self.module.device.type == "cuda":
            torch.cuda.synchronize(self.module.device)

    @property
    def _ranks(self) -> Ranks:
        return Ranks(self.config.world_size())


def pack(source: Path, target: Path) -> None:
    """Leave a copy of a file, gzipped, as Perfetto reads it. Raises OSError."""
    with source.open("rb") as trace, documents.replacing(target) as file, gzip.GzipFile("", "wb", 6, file, 0) as packed:
        shutil.copyfileobj(trace, packed)
