"""Saves checkpoints after epochs or steps, with all state that the rest of the training depends on.

Lightning collects and restores the state of model, optimizer, schedule, loss scaler, loops and callbacks. This module
adds what Lightning leaves out, for every process: random states, buffers (they differ between evaluations), and values
logged in the epoch so far. The order of the samples follows from seed, epoch and step.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.callbacks import Checkpoint

from tracking.measure.training import MeasuringCallback, epochs_trained
from tracking.record import Journal, checkpoints
from trainers.data.loading.position import Positionable
from trainers.loop.saving.background import Job, Stopwatch, Writer, in_words
from trainers.loop.saving.copies import ALIGNMENT, has_room, num_bytes
from trainers.loop.saving.interval import Interval, SavedAndEnded, Stopping
from trainers.loop.saving.meeting import Meeting
from trainers.loop.saving.random_states import random_states, set_random_states
from trainers.ops.sharding import sharded
from trainers.workload import Loader, Shard


class CheckpointCallback(Checkpoint):
    """Saves checkpoints at its interval, except after the last epoch, and resumes from one that is loaded.

    Lightning calls a Checkpoint after all other callbacks at the end of an epoch. Checkpoints after steps are written
    in the background, from copies. Call `make_room` before the clock starts.
    """

    def __init__(
        self, run_dir: Path, interval: Interval, shard: Shard, journal: Journal | None, loader: Loader
    ) -> None:
        self._run_dir, self._interval, self._shard, self._journal = run_dir, interval, shard, journal
        self._loader = loader
        self._writer: Writer | None = None
        self._stopping = Stopping(run_dir)
        self._in_background = True
        self._copy_bytes: int | None = None
        self._meeting: Meeting | None = None
        self._joules = 0.0  # energy of all processes in the attempt that saved the loaded checkpoint
        self._loaded: dict[str, Any] = {}  # this process's state in a checkpoint that was loaded

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # Not earlier: making the module draws numbers. Not later: PyTorch's loaders draw a seed for their first epoch.
        if "random" in self._loaded:
            set_random_states(self._loaded["random"], self._shard.device)
        self._writer = Writer(self._shard, self.state_key)
        self._meeting = Meeting(self._shard, pl_module)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        loop = trainer.fit_loop.epoch_loop
        if trainer.fit_loop.restarted_mid_epoch:
            assert isinstance(self._loader, Positionable)
            self._loader.begin_behind(loop.batch_progress.current.ready)
        with torch.no_grad():  # DDP has meanwhile broadcast the buffers of rank 0.
            for name, buffer in pl_module.named_buffers():
                if name in self._loaded.get("buffers", {}):
                    buffer.copy_(self._loaded["buffers"][name])
        if measuring := measuring_callback(trainer):
            measuring.logged.load_checkpoint(self._loaded.get("logged", ()))
            measuring.meter.energy_meter.earlier_joules += self._joules
            if self._shard.rank == 0:
                measuring.meter.is_stop_requested = self._stopping.is_requested
        self._loaded = {}
        if not isinstance(self._loader, Positionable):
            return
        if self._copy_bytes is None:
            self.make_room(pl_module)
        advanced = loop.on_advance_end

        def advance_and_save(fetcher: Any) -> None:  # Called after a step and the evaluation that follows it.
            advanced(fetcher)
            self._step_done(trainer, pl_module)

        loop.on_advance_end = advance_and_save  # type: ignore[method-assign, assignment]

    def make_room(self, module: pl.LightningModule, optimizer_bytes: int = 0) -> None:
        """Decide whether copies fit on every process, journal their size and allocate them.

        `optimizer_bytes` is the size of the optimizer's state after a step. A collective call.
        """
        if self._interval.steps is None or not isinstance(self._loader, Positionable):
            return
        assert self._writer is not None
        weights = module.state_dict()
        self._copy_bytes = num_bytes(weights, ALIGNMENT) + optimizer_bytes
        if any(map(sharded.is_sharded, weights.values())):
            self._note_background(False, "are assembled from the shards of all processes")
            return
        room = torch.tensor(float(has_room(self._copy_bytes, self._shard.device)))
        if self._shard.world_size > 1:
            dist.all_reduce(room, dist.ReduceOp.MIN)
        self._note_background(bool(room))
        if room:
            buffers = {name: value for name, value in module.named_buffers() if name in weights}
            self._writer.make_room(num_bytes(buffers, ALIGNMENT) if self._shard.rank else self._copy_bytes)
            # Imports take longer than a step, so do them before the clock. A failure shows again at the checkpoint.
            with suppress(Exception):
                module.trainer._checkpoint_connector.dump_checkpoint(weights_only=False)

    def _note_background(self, in_background: bool, why: str = "do not fit") -> None:
        self._in_background = in_background
        if self._journal is None:
            return
        size = f"{(self._copy_bytes or 0) / 1e6:,.0f} MB"
        where = "of the GPU's memory and as much of the host's" if self._on_gpu() else "of memory"
        words = f"beside the training, in {size} more {where}"
        if not in_background:
            words = f"while the training waits, since copies of {size} {why}"
        self._journal.tags({"checkpoints": words})

    def _on_gpu(self) -> bool:
        return self._shard.device.type == "cuda"

    def _step_done(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._note_written()
        progress = trainer.fit_loop.epoch_loop.batch_progress
        step = progress.total.ready
        within_epoch = progress.current.ready < trainer.num_training_batches
        stop_requested = self._told_to_stop(trainer)
        at_interval = self._interval.steps is not None and step % self._interval.steps == 0
        if within_epoch and (at_interval or stop_requested) and not trainer.should_stop:
            self._save(trainer, module, step, stop_requested)

    def _told_to_stop(self, trainer: pl.Trainer) -> bool:
        """Return whether the run is to save now and end; the same on all processes."""
        measuring = measuring_callback(trainer)
        if measuring is None:
            return False
        return measuring.meter.should_stop or (self._shard.world_size == 1 and self._stopping.is_requested())

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        epoch, step = trainer.current_epoch + 1, trainer.fit_loop.epoch_loop.batch_progress.total.ready
        epoch_due = self._interval.epochs is not None and epoch % self._interval.epochs == 0
        step_due = self._interval.steps is not None and step % self._interval.steps == 0
        stop_requested = self._told_to_stop(trainer)
        if (epoch_due or step_due or stop_requested) and epoch != trainer.max_epochs and not trainer.should_stop:
            self._save(trainer, pl_module, stop_requested=stop_requested)

    def _save(
        self, trainer: pl.Trainer, module: pl.LightningModule, step: int = 0, stop_requested: bool = False
    ) -> None:
        """Save a checkpoint: after `step`, in the background; after an epoch (step=0), before this returns.

        If `stop_requested`, save before this returns and raise SavedAndEnded. A collective call.
        """
        assert self._writer is not None
        place: dict[str, Any] = {"epoch_num": trainer.current_epoch + 1}
        if step:
            place = {"epoch_num": epochs_trained(trainer), "step": step}
            self._end_steps(trainer)
        watch = Stopwatch()
        self._event("checkpoint_start", **place)
        watch.ended("journal")
        self._writer.wait()
        self._note_written()
        watch.ended("wait")
        job = self._job(trainer, module, step, watch)
        in_background = self._in_background and step > 0 and not stop_requested
        if self._writer.write(job, in_background) != in_background:
            self._note_background(False, "failed")
        watch.ended("copy" if job.in_background else "write")
        if not step:
            self._note_written()
        failed = {"error": job.error} if job.error and not step else {}
        self._event("checkpoint_stop", **place, **watch.parts, **failed)
        if stop_requested:
            self._note_written()
            raise SavedAndEnded

    def _job(self, trainer: pl.Trainer, module: pl.LightningModule, step: int, watch: Stopwatch) -> Job:
        """Collect the state to be saved; if that fails on a process, the job holds only the error."""
        measuring = measuring_callback(trainer)
        if measuring:
            measuring.gather_state()
        watch.ended("figures")
        path, failure = checkpoints.path_of(self._run_dir, trainer.current_epoch + (not step), step), ""
        try:
            content = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
            watch.ended("state")
            rank_state: dict[str, Any] = {"random": random_states(self._shard.device), "buffers": {}}
            if self._shard.rank:
                saved_names = module.state_dict().keys()
                rank_state["buffers"] = {name: value for name, value in module.named_buffers() if name in saved_names}
        except Exception as error:
            failure = in_words(error)
        watch.ended("random")
        if self._meeting is not None:
            self._meeting.gathered(failure)
        if failure:
            return Job(path, step, {}, {}, error=failure)
        late: dict[str, Any] = {}
        if measuring:
            # Reading the counter of energy takes some milliseconds.
            late = {"logged": measuring.logged.of_checkpoint(), "joules": measuring.meter.energy_meter.rank_joules}
        watch.ended("collect")
        return Job(path, step, content if self._shard.rank == 0 else {}, rank_state, late)

    def _end_steps(self, trainer: pl.Trainer) -> None:
        """Wait for the GPU if saving would wait for it anyway, so that its steps count as training, not as saving.

        Saving waits when no copies are made, when a file is still being written, and to read a loss scaler's state.
        """
        assert self._writer is not None
        scaled = getattr(trainer.precision_plugin, "scaler", None) is not None
        if self._on_gpu() and (not self._in_background or self._writer.busy() or scaled):
            torch.cuda.synchronize(self._shard.device)

    def _note_written(self) -> None:
        assert self._writer is not None
        for job in self._writer.written():
            if job.step:  # After an epoch, the training has waited for the file, and checkpoint_stop says how it ended.
                failed = {"error": job.error} if job.error else {}
                self._event("checkpoint_saved", step=job.step, sec=job.sec, **job.parts, **failed)

    def finish(self) -> None:
        """Wait for the last file and journal how it ended; to be called when the training has stopped."""
        if self._writer is not None:
            self._writer.wait()
            self._note_written()

    def _event(self, key: str, **values: Any) -> None:
        if self._journal is not None:
            self._journal.event(key, **values)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._joules = sum(state_dict.get("joules", ()))
        # Random states and buffers belong to one process each; another number of processes cannot continue them.
        if all(len(by_rank) == self._shard.world_size for by_rank in state_dict.values()):
            self._loaded = {key: by_rank[self._shard.rank] for key, by_rank in state_dict.items()}


def measuring_callback(trainer: pl.Trainer) -> MeasuringCallback | None:
    callbacks = trainer.callbacks  # type: ignore[attr-defined]
    return next((callback for callback in callbacks if isinstance(callback, MeasuringCallback)), None)
