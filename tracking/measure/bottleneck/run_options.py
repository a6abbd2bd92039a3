"""The options of a run that decide what to advise: those it has, those it uses already, and values that still fit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from conf.dataset_options import default_threads
from conf.schema import RunConfig
from tracking.measure.bottleneck import activity
from tracking.measure.training import clock, throughput
from tracking.record import Record, documents, run_folder

HALF_PRECISIONS = ("bf16", "fp16", "fp8")
USABLE_MEMORY_PERCENT = 90.0  # of a GPU's memory; the rest is for fragmentation and longer samples
MICRO_BATCH = "micro_batch_size"
HPARAMS = "hparams/"
EPOCHS = "eval_at_epochs with fewer epochs"


@dataclass(frozen=True)
class RunOptions:
    """A run's options, from its params, and from its config if available, since the params do not have all options.

    `memory_percent` is the highest share of a GPU's memory in use. `epoch_samples` are the training samples of an
    epoch, in the unit of the batch size. `step_sec` is the mean time of a step. `cores` are those of the head node that
    the run may use. Each is 0 if not known, and so is `num_evaluations`.
    """

    params: Mapping[str, str]
    config: RunConfig | None = None
    memory_percent: float = 0.0
    epoch_samples: int = 0
    step_sec: float = 0.0
    num_evaluations: int = 0
    cores: int = 0

    @property
    def ours(self) -> bool:
        """Whether timetrial trains. A user's script or program does not say if it compiles."""
        return "compile" in self.params

    @property
    def compiled(self) -> bool:
        return self.params.get("compile") == "True"

    @property
    def on_gpu(self) -> bool:
        return self.params.get("gpus") != "0"

    @property
    def precision(self) -> str:
        return self.params.get("precision", "")

    @property
    def in_half_precision(self) -> bool:
        return self.precision in HALF_PRECISIONS

    @property
    def dataset(self) -> str:
        return self.params.get("dataset", "")

    @property
    def devices(self) -> int:
        """The processes of all nodes."""
        return max(1, self.number("gpus"), self.number("cpu_processes")) * max(1, self.number("nodes"))

    def number(self, key: str) -> int:
        """A param as a whole number; 0 if it is missing, or not a whole number."""
        text = self.params.get(key, "")
        return int(text) if text.isdigit() else 0

    @property
    def is_split(self) -> bool:
        """Whether a device computes its batch in several micro-batches."""
        return 0 < self.number(HPARAMS + MICRO_BATCH) < self.number("batch_size")

    @property
    def step_key(self) -> str:
        """The option for the samples of a step. A model with a global batch refuses `batch_size=`."""
        of_all = HPARAMS + MICRO_BATCH in self.params if self.config is None else self.config.model.global_batch
        return "global_batch_size" if of_all else "batch_size"

    @property
    def held_key(self) -> str:
        """The option for the samples that a device holds at once."""
        return f"model.hparams.{MICRO_BATCH}" if self.is_split else self.step_key

    @property
    def held(self) -> int:
        """The value of `held_key`; 0 if not known."""
        if self.is_split:
            return self.number(HPARAMS + MICRO_BATCH)
        return self.number("batch_size") * (self.devices if self.step_key == "global_batch_size" else 1)

    def largest_held(self) -> int | None:
        """The value of `held_key` times the largest power of two that fits; None if memory or batch are not known.

        The estimate is low: all memory counts as growing with the batch, even that of weights and optimizer.
        """
        if not self.held or not self.memory_percent:
            return None
        fits = self.held * 2 ** math.floor(math.log2(max(1.0, USABLE_MEMORY_PERCENT / self.memory_percent)))
        while fits > self.held and not self._is_possible(fits):
            fits //= 2
        return int(fits)

    def _is_possible(self, held: int) -> bool:
        """Whether the data has so many samples; micro-batches have to divide a device's batch."""
        most = self.most_held
        return not most or (held <= most and not (self.is_split and most % held))

    @property
    def most_held(self) -> int:
        """The largest value of `held_key` for this data: a larger batch than an epoch is refused. 0 if not known."""
        if self.is_split:
            return self.number("batch_size")
        return self.epoch_samples // (1 if self.step_key == "global_batch_size" else self.devices)

    @property
    def can_hold_more(self) -> bool:
        """Whether the data has twice the samples that a device holds at once, as far as it is known."""
        return not self.most_held or 2 * self.held <= self.most_held

    @property
    def has_larger_step(self) -> bool:
        """Whether the data has twice the samples of a step, as far as it is known."""
        return not self.epoch_samples or 2 * self.number("batch_size") * self.devices <= self.epoch_samples

    @property
    def more_threads(self) -> int:
        """The default of dataset.num_threads, if it is known and more than was given; else 0."""
        given = self.config.dataset.num_threads if self.config else None
        if self.config is None or not given or not self.cores:
            return 0
        default = default_threads(self.cores // self.config.processes_per_node())
        return default if default > given else 0

    @property
    def fewer_evaluations(self) -> str:
        """The option that makes this run evaluate less often, by the kind of its present interval."""
        if self.config is None:
            by_samples = "eval_interval_samples" in self.params
            return "a larger eval_every_steps or eval_every_samples" if by_samples else EPOCHS
        intervals = self.config.evaluated()
        if intervals.every_steps or intervals.every_samples:
            return f"a larger eval_every_{'steps' if intervals.every_steps else 'samples'}"
        return EPOCHS


def of_run(
    folder: Path, params: Mapping[str, str], records: Sequence[Record], events: Sequence[Record], training_sec: float
) -> RunOptions:
    """The options of a run from its folder. What is unreadable counts as absent."""
    config, cores = None, 0
    with suppress(OSError, ValueError):
        config = run_folder.read_config(folder)
    with suppress(OSError, ValueError, LookupError, TypeError):
        cores = int(documents.read_json(folder / run_folder.FINGERPRINT)["host"]["usable_threads"])
    windows = [event.values for event in events if event.key == "throughput_window"]
    steps = sum(len(values.get("step_ms") or ()) for values in windows)
    in_sentences = any(throughput.SIDE_TOKENS_KEYS[0] in values for values in windows)  # but the batch is in tokens
    samples = clock.first(events, "train_samples")
    return RunOptions(
        params,
        config,
        memory_percent=activity.highest(records, "memory_usage_percentage"),
        epoch_samples=0 if samples is None or in_sentences else int(samples.value or 0),
        step_sec=training_sec / steps if steps else 0.0,
        num_evaluations=sum(event.key == "eval_stop" for event in events),
        cores=cores,
    )
