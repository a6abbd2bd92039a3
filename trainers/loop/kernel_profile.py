"""Traces some training steps on every rank with PyTorch's profiler, after the clock has stopped.

The steps are real training steps: real batches, and the run's precision, exchange and optimizer. The model is restored
afterwards. A first trace of one step tells how many steps fit into profile.trace_megabytes.
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

NUM_WARMUP = 2  # steps traced and dropped, because the first ones include starting the profiler


def profile_at_the_end(
    config: RunConfig, trainer: pl.Trainer, module: TrialModule, loader: Loader, rank: int, log: Journal | None,
    run_dir: Path,
) -> None:  # fmt: skip
    """Trace steps and journal the outcome. An error is logged and journaled; it does not fail the finished run."""
    outcome: dict[str, Any] = {}
    try:
        if log:
            log.event("profile_start")
        profile = StepProfiler(config, trainer, module, loader, rank).write(run_dir)
        outcome = {"num_steps": profile.num_steps, "notes": list(profile.notes)}
    except Exception as error:
        outcome = {"error": f"{type(error).__name__}: {error}"}
        logging.getLogger(__name__).warning("no profile", exc_info=True)
    if log:
        with suppress(OSError):  # The disk is full.
            log.event("profile_stop", **outcome)


@dataclass
class StepProfiler:
    """Traces steps of one rank. `write` is a collective call."""

    config: RunConfig
    trainer: pl.Trainer
    module: TrialModule
    loader: Loader
    rank: int

    def write(self, run_dir: Path) -> kernels.Profile:
        """Write profile.json, its table and the traces into the run's folder; return the profile. Raises OSError."""
        os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # Kineto would print a warning on machines without a GPU.
        with tempfile.TemporaryDirectory(prefix=kernels.SCRATCH, dir=run_dir) as scratch:
            path = Path(scratch) / "trace.json"
            with untouched(self.trainer, self.module), closing(self._endless()) as batches:
                self._record(1, batches, path)
                num_steps = self._num_fitting(path.stat().st_size)
                if num_steps:
                    self._record(num_steps, batches, path)
            parts = run_dir / f"{kernels.SCRATCH}parts"
            profile = self._profile(num_steps, path, parts) if num_steps else self._empty()
            if kernels.trace_name(self.rank) in profile.traces:
                pack(path, run_dir / kernels.trace_name(self.rank))
        if self.rank == 0:
            profile = self._merged(profile, run_dir, parts)
            kernels.write(run_dir, profile)
        return profile

    def _merged(self, profile: kernels.Profile, run_dir: Path, parts: Path) -> kernels.Profile:
        """Merge the traces of as many ranks as the limit allows; return the profile with the merged trace's name."""
        if self.config.world_size() == 1 or not profile.num_steps:
            return profile
        order = dict.fromkeys([0, profile.slowest, *range(self.config.world_size())])
        limit = self.config.profile.trace_megabytes
        written = [part for rank in order if (part := parts / f"{rank}.json").exists()]
        merged = merged_trace.write(run_dir, written, limit * 1e6)
        shutil.rmtree(parts, ignore_errors=True)
        incomplete, notes = f"{merged_trace.NAME} has {merged} of {len(order)} ranks: ", list(profile.notes)
        if merged < len(written):
            notes.append(f"{incomplete}more would exceed profile.trace_megabytes={limit:g}")
        if missing := len(order) - len(written):
            notes.append(f"{incomplete}{missing} wrote no trace, as on a full disk")
        return replace(profile, traces=[*profile.traces, merged_trace.NAME], notes=notes)

    def _num_fitting(self, bytes_per_step: int) -> int:
        """Return how many steps to trace: profile.steps, or as many as fit into the limit on every rank."""
        fitting = int(self.config.profile.trace_megabytes * 1e6 / bytes_per_step)
        return min(self.config.profile.steps, -int(self._ranks.largest(-fitting)))

    def _profile(self, num_steps: int, path: Path, parts: Path) -> kernels.Profile:
        requested, limit = self.config.profile.steps, self.config.profile.trace_megabytes
        document = json.loads(path.read_bytes())
        summary = kernels.summarize(kernels.parse(document)).plain()
        if self.config.world_size() > 1:
            with suppress(OSError):  # On a full disk the merged trace lacks this rank.
                parts.mkdir(exist_ok=True)
                documents.write_json(parts / f"{self.rank}.json", merged_trace.part(document, self.rank))
        summaries = [json.loads(words) for words in self._ranks.gather_texts(json.dumps(summary))]
        slowest = kernels.slowest(summaries)
        shown = sorted({0, slowest})
        note = f"{num_steps} of {requested} steps: more would exceed profile.trace_megabytes={limit:g}"
        return kernels.Profile(
            asked_steps=requested,
            num_steps=num_steps,
            slowest=slowest,
            software={"torch": torch.__version__, "cuda": torch.version.cuda},
            ranks=[
                {"rank": rank, **{key: summary[key] for key in ("step_ms", "busy_ms", "collective_ms")}}
                for rank, summary in enumerate(summaries)
            ],
            summaries={str(rank): summaries[rank] for rank in shown},
            traces=[kernels.trace_name(rank) for rank in shown],
            notes=[note] if num_steps < requested else [],
        )

    def _empty(self) -> kernels.Profile:
        requested, limit = self.config.profile.steps, self.config.profile.trace_megabytes
        note = f"no step was traced: one would exceed profile.trace_megabytes={limit:g}. Next: give more"
        return kernels.Profile(asked_steps=requested, num_steps=0, notes=[note])

    def _record(self, num_steps: int, batches: Iterator[Batch], path: Path) -> None:
        """Trace so many steps into a file. Waits for the device at both ends, to keep other steps out of it."""
        activities = [profiler.ProfilerActivity.CPU]
        activities += [profiler.ProfilerActivity.CUDA] if self.module.device.type == "cuda" else []
        plan = profiler.schedule(wait=0, warmup=NUM_WARMUP, active=num_steps, repeat=1)
        # acc_events has no effect on a single cycle; without it PyTorch warns.
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
        """Yield batches without end, from epochs after the training's last one."""
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
    """Write a gzipped copy of a file, which Perfetto can read. Raises OSError."""
    with source.open("rb") as trace, documents.replacing(target) as file, gzip.GzipFile("", "wb", 6, file, 0) as packed:
        shutil.copyfileobj(trace, packed)
