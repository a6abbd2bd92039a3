"""The facts in MLPerf's log about its run as a whole: submitter, platform, benchmark and counts."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from datetime import UTC, datetime
from typing import Any

from tracking.base import quantities
from tracking.measure.programs import checked_values
from tracking.measure.programs.mlperf_benchmarks import Benchmark, benchmark, by_our_names
from tracking.measure.programs.mlperf_lines import Entry, metric_of
from tracking.record import journal, typed_json

COUNTS = ("global_batch_size", "train_samples", "eval_samples")
MAX_METRICS = 100  # of one evaluation
DATASET_COUNTS = ("train_samples", "eval_samples")
RANKS = ("number_of_ranks", "number_of_nodes", "accelerators_per_node")
FACTS = ("submission_org", "submission_platform", "submission_benchmark", "submission_division", "submission_status")
TARGETS = ("eval_target", "target_accuracy")  # of v0.5, and of v5.1


class Submission:
    """The facts of one log.

    `facts` holds submitter, platform and so on. `target` is the log's own target. `not_understood` describes, by kind,
    the first content of the log that no figure could use. `published`: the log is a published one, so its run trained
    on MLPerf's whole dataset. Another program may train on a part.
    """

    def __init__(self, published: bool = False) -> None:
        self._published = published
        self.facts: dict[str, str] = {}
        self.target: float | None = None
        self.not_understood: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._ranks: dict[str, int] = {}
        self._round = self._name = self._opt_name = ""
        self._year = 0
        self.non_number = ""  # the first value of an evaluation that is not a number; such values are left out
        self._metrics: set[str] = set()  # by the log's own names

    def read(self, entry: Entry) -> None:
        """Note a line's facts about the run."""
        key, value = entry.key, entry.value
        self._round, self._name = self._round or entry.round, self._name or entry.benchmark
        if not self._year and entry.time_ms:
            self._year = datetime.fromtimestamp(entry.time_ms / 1e3, UTC).year
        if key in COUNTS and is_count(value):
            self._counts[key] = int(value)
        elif key in RANKS and is_count(value):
            self._ranks[key] = int(value)
        elif key in FACTS and (text := checked_values.text(value)):
            self.facts[key] = text
        elif key == "opt_name":
            self._opt_name = checked_values.text(value)
        elif key in TARGETS and self.target is None and typed_json.is_number(value) and math.isfinite(value):
            self.target = float(value)

    @property
    def name(self) -> str:
        return self.facts.get("submission_benchmark", self._name)

    @property
    def benchmark(self) -> Benchmark:
        return benchmark(self.name, self._round, self._opt_name, self.batch, self._year)

    def by_our_names(self, entry: Entry) -> Entry:
        """An evaluation of the benchmark, with its metrics by our names."""
        self._metrics |= {metric_of(entry)} - {""}
        return by_our_names(entry, self.benchmark, len(self._metrics) > 1)

    def valid_metrics(
        self, metrics: Mapping[str, Any], epoch: float | None, targets: Container[str]
    ) -> dict[str, float]:
        """The values of an evaluation that can be journaled and drawn as curves."""
        numbers = {key: float(value) for key, value in metrics.items() if typed_json.is_number(value)}
        valid = {key: number for key, number in numbers.items() if journal.is_key(quantities.EVAL + key)}
        if (refused := metrics.keys() - valid.keys()) and not self.non_number:
            when = "" if epoch is None else f" of epoch {epoch:.15g}"
            self.non_number = f"{min(refused)[:80]}{when}: {str(metrics[min(refused)])[:80]!r}"
        if len(valid) > MAX_METRICS:
            self.note("metrics", f"more than {MAX_METRICS} metrics of an evaluation")
            valid = {key: valid[key] for key in sorted(valid, key=lambda key: key not in targets)[:MAX_METRICS]}
        return valid

    @property
    def batch(self) -> int:
        """The global batch size; 0 if the log does not give it."""
        return self._counts.get("global_batch_size", 0)

    @property
    def train_samples(self) -> int:
        """train_samples as in the log, in any unit; 0 if absent."""
        return self._counts.get("train_samples", 0)

    @property
    def params(self) -> dict[str, int]:
        """The counts as params, without the dataset's counts if their unit is not samples."""
        other_unit = self.train_samples and self._samples_per_unit() != 1
        return {key: value for key, value in self._counts.items() if not (other_unit and key in DATASET_COUNTS)}

    @property
    def world_size(self) -> int | None:
        if "number_of_ranks" in self._ranks:
            return self._ranks["number_of_ranks"]
        if "number_of_nodes" in self._ranks and "accelerators_per_node" in self._ranks:
            return self._ranks["number_of_nodes"] * self._ranks["accelerators_per_node"]
        return None

    def epoch_samples(self) -> int:
        """The samples of an epoch; 0 if absent. An unknown unit gives 0 too, and is noted."""
        size = self.benchmark.epoch_samples
        if self.train_samples and size and not self._samples_per_unit():
            expected = f"{size[0]:,}" if size[0] == size[1] else f"{size[0]:,} to {size[1]:,}"
            text = f"train_samples {self.train_samples:,}, but an epoch of {self.name} has {expected}: no throughput"
            self.note("train_samples", text)
        return self.train_samples * self._samples_per_unit()

    def note(self, kind: str, text: str) -> None:
        """Note something that is not understood; the first of each kind is kept."""
        self.not_understood.setdefault(kind, text)

    def _samples_per_unit(self) -> int:
        """The samples per unit of train_samples: 1, the batch size in logs that count batches, 0 if neither fits."""
        factors = (factor for factor in (1, self.batch) if self.benchmark.is_epoch(self.train_samples * factor))
        return next(factors, 0 if self._published else 1)


def is_count(value: Any) -> bool:
    return type(value) is int and 0 < value < 2**53
