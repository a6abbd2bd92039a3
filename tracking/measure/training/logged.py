"""Values that a module logs with `self.log`, kept without waiting for the device, and read as windows and epochs end.

A value on a GPU is copied to pinned memory after the step that made it, like the loss. Values of steps become one value
per window, values of an epoch one per epoch. Without calls of `self.log`, nothing here does anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import Any

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.trainer.connectors.logger_connector.fx_validator import _FxValidator
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from conf.schema import ConfigError
from tracking.base import quantities
from tracking.record import journal
from tracking.request import name_checks

OURS = tuple(sorted((quantities.EVAL, *quantities.RESERVED)))
OUR_NAMES = tuple(sorted((quantities.EPOCH, quantities.TRAIN_LOSS, *name_checks.RESERVED_NAMES)))
REDUCTIONS = ("mean", "sum", "min", "max")
NUM_SLOTS = 1024  # values in a block of pinned memory


@dataclass(frozen=True)
class LogCall:
    """How a name is logged: its journal keys for values of steps and of epochs, and the reduction to one value."""

    step_key: str | None
    epoch_key: str | None
    reduction: str
    synced: bool  # reduced over all processes; else rank 0's value
    of_evaluation: bool


Entry = tuple[LogCall, float | torch.Tensor, float]  # the last is the weight in a mean, the samples of the batch


@dataclass
class Tally:
    """Running sums of values that are reduced to one."""

    weighted_sum: float = 0.0
    weight: float = 0.0
    total: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def add(self, value: float, weight: float) -> None:
        self.merge([value * weight, weight, value, value, value])

    def merge(self, other: list[float]) -> None:
        weighted_sum, weight, total, low, high = other
        self.weighted_sum += weighted_sum
        self.weight += weight
        self.total += total
        self.low, self.high = min(self.low, low), max(self.high, high)

    def result(self, reduction: str) -> float:
        if reduction == "mean":
            return self.weighted_sum / self.weight
        return {"sum": self.total, "min": self.low, "max": self.high}[reduction]


class LoggedValues:
    """The logged values of one process. `has_journal`: whether the process writes the journal.

    Names are checked from the first call on, which is in the warm-up. Values count while `recording`.
    """

    def __init__(self, device: torch.device, world_size: int, has_journal: bool) -> None:
        self.recording = False
        self._device = device
        self._world_size = world_size
        self._has_journal = has_journal
        self.calls: dict[tuple[Any, ...], LogCall] = {}  # by the arguments of `self.log`
        self._entries: list[Entry] = []
        self._unread: list[Entry] = []  # taken, and not yet read
        self._epoch: dict[LogCall, Tally] = {}
        self._blocks: dict[torch.dtype, tuple[torch.Tensor, int]] = {}  # a block and its number of used slots

    def add(
        self, module: pl.LightningModule, name: str, value: Any, on_step: bool | None, on_epoch: bool | None,
        reduce_fx: str | Callable[..., Any], sync_dist: bool, batch_size: int | None,
    ) -> None:  # fmt: skip
        """Keep a value. Raises ConfigError for a name, a value or an option that cannot be logged."""
        if self.recording:
            hook = str(module._current_fx_name)
        else:  # the warm-up calls the steps outside of Lightning's loop
            hook = "training_step" if module.training else "validation_step"
        arguments = (hook, name, on_step, on_epoch, reduce_fx, sync_dist)
        if arguments not in self.calls:
            self.calls[arguments] = self._register(*arguments)
        options = self.calls[arguments]
        check_value(name, value)
        if self.recording and (self._has_journal or options.synced):
            weight = float(samples_of_batch(module) if batch_size is None else batch_size)
            self._entries.append((options, self._copy(value), weight))

    def _register(
        self, hook: str, name: str, on_step: bool | None, on_epoch: bool | None,
        reduce_fx: str | Callable[..., Any], sync_dist: bool,
    ) -> LogCall:  # fmt: skip
        try:
            of_step, of_epoch = _FxValidator.check_logging_and_get_default_levels(hook, on_step, on_epoch)
        except (MisconfigurationException, RuntimeError) as error:
            raise ConfigError(f"self.log({name!r}): {error}") from error
        of_evaluation = hook.startswith(("validation_", "on_validation_"))
        if of_step and of_evaluation:
            raise ConfigError(f"self.log({name!r}): an evaluation has one value. Next: drop on_step=True in {hook}")
        reduction = reduce_fx if isinstance(reduce_fx, str) else getattr(reduce_fx, "__name__", str(reduce_fx))
        if reduction not in REDUCTIONS:
            raise ConfigError(f"self.log({name!r}): reduce_fx={reduction}. Allowed: {', '.join(REDUCTIONS)}")
        has_two_keys = of_step and of_epoch  # Lightning gives such values two names
        options = LogCall(
            (f"{name}_step" if has_two_keys else name) if of_step else None,
            (f"{name}_epoch" if has_two_keys else name) if of_epoch else None,
            reduction,
            bool(sync_dist) and self._world_size > 1,
            of_evaluation,
        )
        for key in filter(None, (options.step_key, options.epoch_key)):
            check_key(name, key)
            if any(key in (other.step_key, other.epoch_key) for other in self.calls.values() if other != options):
                raise ConfigError(
                    f"self.log({name!r}): {key} is logged already, with other options, or by both training and"
                    " evaluation. Next: give it another name"
                )
        return options

    def _copy(self, value: float | torch.Tensor) -> float | torch.Tensor:
        """A copy of the value, since a step may overwrite its tensors, as the replay of a CUDA graph does."""
        if not isinstance(value, torch.Tensor) or value.device.type == "cpu":
            return float(value)
        block, num_used = self._blocks.get(value.dtype, (None, NUM_SLOTS))
        if block is None or num_used == NUM_SLOTS:
            block, num_used = torch.empty(NUM_SLOTS, dtype=value.dtype, pin_memory=True), 0
        self._blocks[value.dtype] = block, num_used + 1
        return block[num_used].copy_(value.detach().reshape(()), non_blocking=True)

    def take(self) -> list[Entry]:
        """The entries logged since the last call."""
        entries, self._entries = self._entries, []
        self._unread += entries
        return entries

    def of_window(self, entries: list[Entry]) -> dict[str, float]:
        """The values of steps by key, over a window that the device has passed. A collective call.

        `entries` are the earliest unread ones of `take`."""
        del self._unread[: len(entries)]
        tallies: dict[LogCall, Tally] = {}
        for options, value, weight in entries:
            for key, tallies_of_period in ((options.step_key, tallies), (options.epoch_key, self._epoch)):
                if key is not None and weight > 0:
                    tallies_of_period.setdefault(options, Tally()).add(float(value), weight)
        return self._results(tallies, lambda options: options.step_key)

    def of_epoch(self, within: bool = False) -> dict[str, float]:
        """The values of the epoch or the evaluation by key, over all windows since the last call. Collective.

        `within`: the epoch goes on, so its training's values are kept until it ends.
        """
        continuing = {options: tally for options, tally in self._epoch.items() if within and not options.of_evaluation}
        tallies = {options: tally for options, tally in self._epoch.items() if options not in continuing}
        self._epoch = continuing
        return self._results(tallies, lambda options: options.epoch_key)

    def rest(self, within: bool = False) -> dict[str, float]:
        """All values logged since the last window and epoch; `within` as in `of_epoch`.

        Waits for the device. A collective call.
        """
        entries = self.take()
        if any(isinstance(value, torch.Tensor) for _, value, _ in entries):
            torch.cuda.current_stream(self._device).synchronize()
        return self.of_window(entries) | self.of_epoch(within)

    def of_checkpoint(self) -> Callable[[], list[list[Any]]]:
        """A function that returns what the epoch's training has logged so far, for `load_checkpoint`.

        Call the function once the device has passed the last step, whose values may still be on their way.
        """
        calls = {call for call in self.calls.values() if call.epoch_key is not None and not call.of_evaluation}
        tallies = {call: replace(self._epoch.get(call, Tally())) for call in calls}
        entries = [entry for entry in (*self._unread, *self._entries) if entry[0] in calls]
        return partial(checkpoint_rows, tallies, entries)

    def load_checkpoint(self, rows: Sequence[Sequence[Any]]) -> None:
        """Continue an epoch from a checkpoint with these values of this process."""
        for row in rows:
            call, tally = LogCall(*row[:5]), Tally(*row[5:])
            self.calls[(call,)] = call  # all processes have to know the name before its next value
            if tally.weight > 0:
                self._epoch[call] = tally

    def _results(self, tallies: dict[LogCall, Tally], key_of: Callable[[LogCall], str | None]) -> dict[str, float]:
        synced = {options for options in self.calls.values() if options.synced and key_of(options) is not None}
        if synced:
            self._gather(sorted(synced, key=lambda options: str(key_of(options))), tallies)
        return {str(key_of(options)): tally.result(options.reduction) for options, tally in tallies.items()}

    def _gather(self, synced: list[LogCall], tallies: dict[LogCall, Tally]) -> None:
        """Merge the tallies of all processes. Each sends a row for every name, even without a sample."""
        rows_of_rank = [vars(tallies.pop(options, Tally())).values() for options in synced]
        message = torch.tensor([list(row) for row in rows_of_rank], dtype=torch.float64)
        # On the host over gloo, so that it does not queue behind the device's work.
        received = [torch.empty_like(message) for _ in range(self._world_size)]
        dist.all_gather(received, message)
        for index, options in enumerate(synced):
            merged = Tally()
            for rows in received:
                merged.merge(rows[index].tolist())
            if merged.weight > 0:
                tallies[options] = merged


def check_key(name: str, key: str) -> None:
    """Raise ConfigError for a key that MLflow does not accept, or that timetrial uses."""
    if not journal.is_key(key):
        raise ConfigError(f"self.log({name!r}): MLflow does not accept the name. Allowed: {journal.KEY_RULE}")
    if key.startswith(OURS) or key in OUR_NAMES:
        ours = f"names that begin with {', '.join(OURS)}, and {', '.join(OUR_NAMES)}"
        raise ConfigError(
            f"self.log({name!r}): {key} is a name that timetrial uses for its own measurements ({ours}). Next: give"
            " another one, such as train/<name> or valid/<name>"
        )


def check_value(name: str, value: Any) -> None:
    """Raise ConfigError for a value that is neither a number nor a tensor of one number."""
    if isinstance(value, int | float) or (isinstance(value, torch.Tensor) and value.numel() == 1):
        return
    kind = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
    raise ConfigError(
        f"self.log({name!r}): is {kind}. Next: log a number or a tensor of one number (for a torchmetrics.Metric, its"
        " compute() in on_validation_epoch_end)"
    )


def samples_of_batch(module: pl.LightningModule) -> float:
    """The real samples of the current batch; 1 between batches."""
    results = module.trainer._results
    batch = None if results is None else results.batch
    return float(batch.get("num_samples", 1)) if isinstance(batch, dict) else 1.0


def checkpoint_rows(tallies: Mapping[LogCall, Tally], entries: Sequence[Entry]) -> list[list[Any]]:
    """The tallies with the entries added, as rows of plain values. Changes the tallies."""
    for call, value, weight in entries:
        if weight > 0:
            tallies[call].add(float(value), weight)
    return [[*astuple(call), *astuple(tally)] for call, tally in tallies.items()]
