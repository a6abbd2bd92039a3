"""The meter of one process of a run: clock, windows of steps and energy, for any training loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tracking.base import quantities
from tracking.measure.steps import HostWatch, LastGradient, Ranges, ShardedExchanges, first_process, rank_parts
from tracking.measure.training import throughput
from tracking.measure.training.energy import EnergyMeter
from tracking.measure.training.logged import LoggedValues
from tracking.measure.training.ranks import Ranks
from tracking.measure.training.step_timer import Chunk, StepTimer
from tracking.record import Journal


class NonFiniteLoss(ArithmeticError):
    """The loss became NaN or infinite; the message names the step."""


class Meter:
    """Measures one process. Every rank has a meter; rank 0's has the journal.

    The clock's figures come from the journal's events. `windows`, `samples` (of all ranks) and `energy` hold the rest
    of the summary, including earlier attempts of the run. `logged` holds the values that a module logs. With `advice`,
    a non-finite loss ends the run, and the message ends with the advice.
    """

    def __init__(
        self, device: torch.device, ranks: Ranks, journal: Journal | None, window_steps: int,
        logged: LoggedValues | None = None, advice: str | None = None,
    ) -> None:  # fmt: skip
        self.windows: list[throughput.Window] = []
        self.energy: dict[str, float] = {}
        self.samples = 0
        self.first_metrics: dict[str, float] = {}  # the metrics of the first evaluation on this process
        self.step, self.epoch_num = 0, 1
        self.knows_samples = True  # False once a step's number of samples is unknown; no rate is logged from then on
        self.ranks = ranks
        self.is_stop_requested: Callable[[], bool] = lambda: False  # whether this process was asked to stop
        self.should_stop = False  # whether any process was asked to; all processes know it a window later
        self.ranges = Ranges()
        self._journal = journal
        self._window_steps = window_steps
        self._logged, self._advice = logged, advice
        self.times_waits = True  # False if a loop does not report when its batch was ready
        self.is_ddp = False  # a loop that cannot tell leaves it False; the times then show where the exchange is
        self._device, self._timer = device, StepTimer(device)
        self._marks_steps = ranks.size > 1 or device.type == "cpu"
        self._gradient = LastGradient(self._timer.mark)
        self._sharded = ShardedExchanges(self._timer.mark)
        self._host = HostWatch()
        self._fetched_mark: object = None  # the mark at which the next step's batch was ready, if known
        self.energy_meter = EnergyMeter(device, ranks)
        self._chunk: Chunk | None = None
        self._full_chunk: Chunk | None = None  # read once the next chunk is full
        self._samples_read = 0  # samples of the windows read since the last `close`
        self._first_step = True  # whether the next step is an attempt's first, a window of its own
        self._num_to_skip = 0  # the next windows to leave out of `windows`, after a resume
        self._section = (0, 0)  # the current epoch, and the number of its earlier sections
        self._follows_evaluation = False  # whether an evaluation within the epoch precedes the next window

    @property
    def is_open(self) -> bool:
        """Whether steps are being timed: between `open` and `close`."""
        return self._chunk is not None

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint, without windows (the journal has them) and this attempt's energy. Collective."""
        return {
            "step": self.step,
            "samples": self.samples + self.unread(),
            "joules": self.energy_meter.earlier_joules,
            "energy": dict(self.energy),
            "stretch": self._section,
        }

    def unread(self) -> int:
        """The samples of all ranks in windows that are not read yet. A collective call."""
        return int(self.ranks.total(sum(chunk.samples for chunk in (self._full_chunk, self._chunk) if chunk)))

    def section_samples(self) -> int:
        """The samples since the last `close`. A collective call."""
        return self._samples_read + self.unread()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.step, self.samples = state_dict["step"], state_dict["samples"]
        self.energy_meter.earlier_joules, self.energy = state_dict["joules"], state_dict["energy"]
        self._num_to_skip = throughput.NUM_COLD
        self._section = tuple(state_dict.get("stretch", self._section))

    def start(self, **metadata: Any) -> None:
        """Start the clock, on all ranks at once."""
        self.ranks.wait()
        self.event("init_stop")
        self.energy_meter.start()
        self.event("run_start", **metadata)

    def note_energy(self, key: str) -> None:
        """Keep the energy of all ranks since the start under `key`. A collective call."""
        self.energy |= self.energy_meter.total(key)

    def open(self, after_evaluation: bool = False) -> None:
        """Start timing the steps of an epoch, or of its rest after an evaluation or a resume."""
        epoch, section = self._section
        self._section = (epoch, section + 1) if epoch == self.epoch_num else (self.epoch_num, 0)
        self._follows_evaluation = after_evaluation
        self._fetched_mark = None
        self._host.seconds()  # drop what came before, such as compiling or an evaluation
        self._sharded.take_pairs()
        self._chunk = Chunk(self._timer.mark())
        self.ranges.begin_epoch(self.epoch_num)

    def batch_ready(self, samples: int, tokens: tuple[int, ...] = (), ready_now: bool = True) -> None:
        """Note that a step's batch is ready, with its real samples, and for text its tokens of source and target.

        It is ready since `batch_fetched`, if that was called; else now, or without `ready_now` since the previous step.
        """
        assert self._chunk is not None
        fetched_mark, self._fetched_mark = self._fetched_mark, None
        before = self._chunk.done_marks[-1] if self._chunk.done_marks else self._chunk.start_mark
        self._chunk.ready_marks.append(fetched_mark or (self._timer.mark() if ready_now else before))
        self.ranges.begin_step(self.step + 1)
        self._chunk.samples += samples
        if tokens:
            earlier = self._chunk.tokens or (0,) * len(tokens)
            self._chunk.tokens = tuple(sum(pair) for pair in zip(earlier, tokens, strict=True))

    @property
    def is_batch_fetched(self) -> bool:
        """Whether `batch_fetched` was called for the next step."""
        return self._fetched_mark is not None

    def batch_fetched(self) -> None:
        """Note that the loader has just returned the next step's first batch; `batch_ready` adds its size."""
        if self._chunk is not None and self._fetched_mark is None:
            self._fetched_mark = self._timer.mark()

    def update_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that all ranks' gradients are ready and the weights change next."""
        if self._chunk is None or not self._marks_steps or self._timer.is_capturing():
            return
        if self.ranks.size > 1:
            self._gradient.watch(optimizer)
            self._sharded.watch(optimizer)
        self._chunk.updates.append((len(self._chunk.done_marks), *self._gradient.take_marks(), self._timer.mark()))

    def step_done(self, loss: torch.Tensor | None, step_in_epoch: int) -> None:
        """Note that a step is launched, counted from 1 in its epoch. If its window is full, read the previous window.

        The losses are read then too. Until then, nothing may write to them, as the replay of a CUDA graph would.
        """
        chunk = self._chunk
        assert chunk is not None
        if loss is not None:
            chunk.losses.append(loss)
        chunk.exchanges += [(len(chunk.done_marks), *pair) for pair in self._sharded.take_pairs()]
        chunk.done_marks.append(self._timer.mark())
        self.ranges.end_step()
        self.step += 1
        if self._first_step or step_in_epoch % self._window_steps == 0:
            self._first_step = False
            chunk.logged = self._logged.take() if self._logged else []
            self._read(self._full_chunk, self.step - len(chunk.done_marks))
            self._full_chunk, self._chunk = chunk, Chunk(chunk.done_marks[-1])

    def close(self) -> int:
        """Read the remaining windows, waiting for the device; return the samples since the last call."""
        chunk = self._chunk
        assert chunk is not None
        self.ranges.leave("epoch")
        if chunk.done_marks:
            chunk.logged = self._logged.take() if self._logged else []
        self._read(self._full_chunk, self.step - len(chunk.done_marks))
        self._read(chunk, self.step)
        self._full_chunk = self._chunk = None
        samples, self._samples_read = self._samples_read, 0
        return samples

    def end(self) -> None:
        """End the training: release its parameters and journal where the ranks ran. A collective call."""
        self._gradient.remove_hooks()
        self._sharded.stop()
        if self.ranks.size > 1:
            calls = list(self._logged.calls.values()) if self._logged else []
            first_process.exchange(self._journal, self.ranks, rank_parts.place(self._device), self.first_metrics, calls)

    def event(self, key: str, value: float | None = None, **metadata: Any) -> None:
        self.ranges.note(key)
        if self._journal is not None:
            self._journal.event(key, value, **metadata)

    def metrics(self, values: dict[str, float]) -> None:
        """Journal values at the current step."""
        if self._journal is not None and values:
            self._journal.metrics(values, self.step)

    def note_logged(self, within_epoch: bool = False) -> None:
        """Journal what the module logged since the last window; an epoch's training values wait for its end."""
        if self._logged is not None:
            self.metrics(self._logged.rest(within_epoch))

    def _read(self, chunk: Chunk | None, step: int) -> None:
        """Turn a chunk into a window over all ranks. Raises NonFiniteLoss on every rank."""
        if chunk is None or not chunk.done_marks:
            return
        local = self._timer.read(chunk)
        scalars = [*self._host.seconds(), chunk.samples, self.is_stop_requested(), *chunk.tokens]
        counts = torch.tensor(scalars, dtype=local.dtype)[:, None].expand(-1, local.shape[1])
        by_rank = self.ranks.gather(torch.cat([local, counts]))
        times, waits, losses = by_rank[:, :3].unbind(dim=1)
        parts, host_delays, sums = by_rank[:, 3:6], by_rank[:, 6:10, 0], by_rank[:, 10:, 0]
        self.should_stop |= bool(sums[:, 1].any())
        if self._advice is not None:
            self._check_losses(losses, step - len(chunk.done_marks))
        window = throughput.Window(
            step,
            self.epoch_num,
            int(sums[:, 0].sum()),
            tuple(times.sum(dim=1).tolist()),
            tuple(waits.sum(dim=1).tolist()) if self.times_waits else (),
            throughput.slowest(times.tolist()),
            throughput.slowest(waits.tolist()) if self.times_waits else (),
            tuple(int(count) for count in sums[:, 2:].sum(dim=0)),
            self._section[1],
            self._follows_evaluation,
            rank_parts.of_window(times, waits * self.times_waits, parts, host_delays, sums[:, 0], self.is_ddp),
        )
        self._follows_evaluation = False
        self.samples += window.samples
        self._samples_read += window.samples
        if self._num_to_skip:  # not steady: data is read and caches fill, as in a run's first windows
            self._num_to_skip -= 1
        else:
            self.windows.append(window)
        loss = float(losses.mean()) if chunk.losses else None
        self._log(window, loss, self._logged.of_window(chunk.logged) if self._logged else {})

    def _check_losses(self, losses: torch.Tensor, before: int) -> None:
        if torch.isfinite(losses).all():
            return
        first = int(torch.nonzero(~torch.isfinite(losses).all(dim=0))[0])
        rank = int(torch.nonzero(~torch.isfinite(losses[:, first]))[0])
        raise NonFiniteLoss(
            f"the loss is {float(losses[rank, first])} at step {before + first + 1} (rank {rank}). {self._advice}"
        )

    def _log(self, window: throughput.Window, loss: float | None, logged: dict[str, float]) -> None:
        if self._journal is None:
            return
        self.event("throughput_window", **throughput.event_values(window))
        logged |= {} if loss is None else {quantities.TRAIN_LOSS: loss}
        knows_samples = self.knows_samples and window.samples
        logged |= {quantities.THROUGHPUT_SAMPLES_PER_SEC: window.samples_per_sec} if knows_samples else {}
        logged |= throughput.token_rates([window])
        if logged:
            self._journal.metrics(logged, window.step)
