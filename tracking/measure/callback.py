"""The Lightning callback that measures: it keeps the clock, times windows of steps, and stops at the target."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl
import torch
import torch.distributed as dist

from conf.schema import RunConfig
from tracking.measure import throughput
from tracking.measure.energy import EnergyMeter
from tracking.measure.logged import LoggedValues
from tracking.measure.step_timer import Chunk, StepTimer
from tracking.run import Journal, attempts


class NonFiniteLoss(ArithmeticError):
    """The loss became NaN or infinite; the message says at which step."""


class TrialCallback(pl.Callback):
    """Measures one run. Every rank has one; rank 0's has the journal.

    `prepare(trainer)` compiles and warms up before the clock starts, `conclude(trainer)` does what comes after it while
    the model is still on its device; `evaluated(trainer, module, metrics)` is called within an evaluation's interval,
    when its value is in the journal. The events that the clock is computed from are in the journal; `windows`,
    `samples` and `energy` hold the rest of the summary after the fit, also of the attempts that a run continues.
    """

    def __init__(
        self,
        config: RunConfig,
        device: torch.device,
        journal: Journal | None,
        prepare: Callable[[pl.Trainer], None],
        conclude: Callable[[pl.Trainer], None],
        evaluated: Callable[[pl.Trainer, Any, dict[str, float]], None] | None = None,
    ) -> None:
        self.windows: list[throughput.Window] = []
        self.energy: dict[str, float] = {}
        self.samples = 0  # They are counted over all ranks.
        self._config = config
        self._targets = config.targets()
        self._journal = journal
        self._prepare = prepare
        self._conclude = conclude
        self._evaluated = evaluated
        self._world_size = config.world_size()
        self._timer = StepTimer(device, config.log_every_n_steps)
        self._meter = EnergyMeter(device)
        self._logged = LoggedValues(device, self._world_size, keeps=journal is not None)
        self._chunk: Chunk | None = None
        self._waiting: Chunk | None = None  # It is full, and is read when the next one is.
        self._step = 0
        self._epoch_samples = 0
        self._reached = False
        self._first_step = True  # An attempt's first step is a window of its own.
        self._num_cold = 0  # So many windows of an attempt that continues another are not steady.

    def state_dict(self) -> dict[str, Any]:
        """What Lightning saves in a checkpoint; the windows are in the journal. A collective call."""
        self._note(self._logged.rest())  # A run that goes on from here does not log it once more.
        joules = self._meter.total("joules").get("joules", math.nan)
        counts = {"step": self._step, "samples": self.samples, "reached": self._reached}
        return counts | {"joules": joules, "energy": dict(self.energy)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._step, self.samples, self._reached = (state_dict[key] for key in ("step", "samples", "reached"))
        self._meter.before, self.energy = state_dict["joules"], state_dict["energy"]
        self._num_cold = throughput.NUM_COLD

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._journal is not None:  # The trainer alone knows these.
            optimizer = type(trainer.optimizers[0]).__name__.lower()
            self._journal.params(
                {
                    "max_epochs": trainer.max_epochs,
                    "optimizer/name": optimizer,
                    "optimizer/learning_rate": self._config.learning_rate(),
                }
            )
        self._event("warmup_start")
        pl_module.logged = self._logged  # type: ignore[assignment]  # It is a TrialModule.
        self._prepare(trainer)
        self._event("warmup_stop")
        dist.barrier()
        self._event("init_stop")
        self._meter.start()
        self._logged.recording = True
        self._event("run_start", max_epochs=trainer.max_epochs, num_batches=int(trainer.num_training_batches))

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._note(self._logged.rest())  # The module's own on_train_epoch_end comes after ours.
        self._event("epoch_start", epoch_num=trainer.current_epoch + 1)
        self._chunk = Chunk(self._timer.mark())

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._close_epoch(trainer)
        self._event("eval_start", epoch_num=trainer.current_epoch + 1)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        metrics: dict[str, float] = pl_module.metrics()  # type: ignore[operator]  # It is a TrialModule.
        epoch = trainer.current_epoch + 1
        value = metrics.get(next(iter(self._config.model.metrics), ""))
        self._event("eval_accuracy", value, epoch_num=epoch, step=self._step, metrics=metrics)
        if self._evaluated is not None:
            self._evaluated(trainer, pl_module, metrics)
        self._event("eval_stop", epoch_num=epoch)
        if self._journal is not None:
            values = {f"eval/{name}": value for name, value in metrics.items()}
            self._journal.metrics(values | {"epoch": epoch}, self._step)
        if not self._reached and attempts.reached(metrics, self._targets):
            self._reached = True
            self.energy |= self._meter.total("energy/to_accuracy_joules")
            trainer.should_stop = self._config.stop_at_target
        self._note(self._logged.rest())

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._chunk is not None:  # Before an evaluation it would be closed by now.
            self._close_epoch(trainer)

    def _close_epoch(self, trainer: pl.Trainer) -> None:
        trained = self._read_windows(trainer)
        self._event("epoch_stop", epoch_num=trainer.current_epoch + 1, samples=trained)
        self._note(self._logged.rest())

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.energy |= self._meter.total("energy/joules")
        self._event("run_stop", status="success" if self._reached or not self._targets else "aborted")
        self._note(self._logged.rest())
        self._logged.recording = False
        self._conclude(trainer)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: dict[str, Any], batch_idx: int
    ) -> None:
        assert self._chunk is not None
        self._chunk.ready.append(self._timer.mark())
        self._chunk.samples += batch["num_samples"]

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: dict[str, Any],
        batch_idx: int,
    ) -> None:
        chunk = self._chunk
        assert chunk is not None
        chunk.losses.append(self._timer.keep(outputs["loss"]))
        chunk.done.append(self._timer.mark())
        self._step += 1
        if self._first_step or (batch_idx + 1) % self._config.log_every_n_steps == 0:
            self._first_step = False
            chunk.logged = self._logged.take()
            self._read_window(trainer, self._waiting, self._step - len(chunk.done))
            self._waiting, self._chunk = chunk, Chunk(chunk.done[-1])

    def _read_windows(self, trainer: pl.Trainer) -> int:
        """Read what is left at the end of an epoch, waiting for the device; return the epoch's samples."""
        assert self._chunk is not None
        if self._chunk.done:
            self._chunk.logged = self._logged.take()
        self._read_window(trainer, self._waiting, self._step - len(self._chunk.done))
        self._read_window(trainer, self._chunk, self._step)
        self._waiting = self._chunk = None
        epoch_samples, self._epoch_samples = self._epoch_samples, 0
        return epoch_samples

    def _read_window(self, trainer: pl.Trainer, chunk: Chunk | None, step: int) -> None:
        """Turn a chunk into a window, over all ranks. Raises NonFiniteLoss, on every rank alike."""
        if chunk is None or not chunk.done:
            return
        ranks, samples = self._gather(self._timer.read(chunk), chunk.samples)
        losses = ranks[:, 2]
        if not torch.isfinite(losses).all():
            first = int(torch.nonzero(~torch.isfinite(losses).all(dim=0))[0])
            at = step - len(chunk.done) + first + 1
            rank = int(torch.nonzero(~torch.isfinite(losses[:, first]))[0])
            raise NonFiniteLoss(
                f"the loss is {float(losses[rank, first])} at step {at} (rank {rank}); most often the learning rate,"
                f" here up to {self._config.learning_rate():g}, is too high: give a lower model.optimizer.lr or another"
                " model.optimizer.lr_scaling"
            )
        times, waits, _ = ranks.unbind(dim=1)
        window = throughput.Window(
            step,
            trainer.current_epoch + 1,
            samples,
            tuple(times.sum(dim=1).tolist()),
            tuple(waits.sum(dim=1).tolist()),
            throughput.slowest(times.tolist()),
            throughput.slowest(waits.tolist()),
        )
        self.samples += samples
        self._epoch_samples += samples
        if self._num_cold:  # Data is read and caches fill, as in a run's first windows.
            self._num_cold -= 1
        else:
            self.windows.append(window)
        self._log_window(window, float(losses.mean()), self._logged.of_window(chunk.logged))

    def _gather(self, own: torch.Tensor, samples: int) -> tuple[torch.Tensor, int]:
        """The values of every rank, shape (ranks, 3, steps), and the samples of all."""
        if self._world_size == 1:
            return own[None], samples
        message = torch.cat([own.flatten(), torch.tensor([float(samples)], dtype=own.dtype)])
        # On the host, over gloo: it must not queue up behind the device's work.
        received = [torch.empty_like(message) for _ in range(self._world_size)]
        dist.all_gather(received, message)
        return torch.stack([row[:-1].view_as(own) for row in received]), int(sum(row[-1] for row in received))

    def _log_window(self, window: throughput.Window, loss: float, logged: dict[str, float]) -> None:
        if self._journal is None:
            return
        self._event("throughput_window", **throughput.written(window))
        if math.isfinite(loss):
            logged |= {"train/loss": loss, "throughput/samples_per_sec": window.samples_per_sec}
        if logged:
            self._journal.metrics(logged, window.step)

    def _note(self, logged: dict[str, float]) -> None:
        """Journal what the module logged, at the step that the training has come to."""
        if self._journal is not None and logged:
            self._journal.metrics(logged, self._step)

    def _event(self, key: str, value: float | None = None, **metadata: Any) -> None:
        if self._journal is not None:
            self._journal.event(key, value, **metadata)
