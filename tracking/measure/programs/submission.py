"""What MLPerf's log says of its run as a whole: who made it, on what, of which benchmark, and in which numbers."""

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
MOST_METRICS = 100  # of one evaluation
OF_DATASET = ("train_samples", "eval_samples")
RANKS = ("number_of_ranks", "number_of_nodes", "accelerators_per_node")
SAYS = ("submission_org", "submission_platform", "submission_benchmark", "submission_division", "submission_status")
TARGETS = ("eval_target", "target_accuracy")  # v0.5's, and v5.1's


class Submission:
    """`said` is who made what; `target` the log's own; `strange` names, by kind, the first of each thing in the log
    that is not understood, and so is in no figure. A submission is `published` where its log was: then it was trained
    on MLPerf's dataset as a whole, and not on a part of it, as a program may be that is tried out.
    """

    def __init__(self, published: bool = False) -> None:
        self._published = published
        self.said: dict[str, str] = {}
        self.target: float | None = None
        self.strange: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._ranks: dict[str, int] = {}
        self._round = self._name = self._opt_name = ""
        self._year = 0
        self.no_number = ""  # the first value of an evaluation that is no number, and is left out
        self._metrics: set[str] = set()  # by the log's own names

    def read(self, entry: Entry) -> None:
        """Take what a line says of the run."""
        key, value = entry.key, entry.value
        self._round, self._name = self._round or entry.round, self._name or entry.benchmark
        if not self._year and entry.time_ms:
            self._year = datetime.fromtimestamp(entry.time_ms / 1e3, UTC).year
        if key in COUNTS and is_count(value):
            self._counts[key] = int(value)
        elif key in RANKS and is_count(value):
            self._ranks[key] = int(value)
        elif key in SAYS and (said := checked_values.text(value)):
            self.said[key] = said
        elif key == "opt_name":
            self._opt_name = checked_values.text(value)
        elif key in TARGETS and self.target is None and typed_json.is_number(value) and math.isfinite(value):
            self.target = float(value)

    @property
    def name(self) -> str:
        return self.said.get("submission_benchmark", self._name)

    @property
    def benchmark(self) -> Benchmark:
        return benchmark(self.name, self._round, self._opt_name, self.batch, self._year)

    def by_our_names(self, entry: Entry) -> Entry:
        """An evaluation of the benchmark."""
        self._metrics |= {metric_of(entry)} - {""}
        return by_our_names(entry, self.benchmark, len(self._metrics) > 1)

    def fitting(self, metrics: Mapping[str, Any], epoch: float | None, targets: Container[str]) -> dict[str, float]:
        """The values of an evaluation that can be journaled, and drawn as curves."""
        numbers = {key: float(said) for key, said in metrics.items() if typed_json.is_number(said)}
        kept = {key: number for key, number in numbers.items() if journal.is_key(quantities.EVAL + key)}
        if (others := metrics.keys() - kept.keys()) and not self.no_number:
            when = "" if epoch is None else f" of epoch {epoch:.15g}"
            self.no_number = f"{min(others)[:80]}{when}: {str(metrics[min(others)])[:80]!r}"
        if len(kept) > MOST_METRICS:
            self.note("metrics", f"metrics of an evaluation behind the first {MOST_METRICS}")
            kept = {key: kept[key] for key in sorted(kept, key=lambda key: key not in targets)[:MOST_METRICS]}
        return kept

    @property
    def batch(self) -> int:
        """The global batch size; 0 where it is not said."""
        return self._counts.get("global_batch_size", 0)

    @property
    def train_samples(self) -> int:
        """As it is said, in whatever unit; 0 where it is not."""
        return self._counts.get("train_samples", 0)

    @property
    def params(self) -> dict[str, int]:
        """The counts, without those of samples where these count something else."""
        own = self.train_samples and self._factor() != 1
        return {key: value for key, value in self._counts.items() if not (own and key in OF_DATASET)}

    @property
    def world_size(self) -> int | None:
        if "number_of_ranks" in self._ranks:
            return self._ranks["number_of_ranks"]
        if "number_of_nodes" in self._ranks and "accelerators_per_node" in self._ranks:
            return self._ranks["number_of_nodes"] * self._ranks["accelerators_per_node"]
        return None

    def epoch_samples(self) -> int:
        """The samples of an epoch; 0 where they are not said, or in a unit that is not known, which is noted."""
        size = self.benchmark.epoch_samples
        if self.train_samples and size and not self._factor():
            has = f"{size[0]:,}" if size[0] == size[1] else f"{size[0]:,} to {size[1]:,}"
            words = f"train_samples {self.train_samples:,}, where an epoch of {self.name} has {has}: no throughput"
            self.note("train_samples", words)
        return self.train_samples * self._factor()

    def note(self, kind: str, words: str) -> None:
        """Name something that is not understood."""
        self.strange.setdefault(kind, words)

    def _factor(self) -> int:
        """The samples in one of train_samples: 1, a batch's in logs that count batches, 0 where neither can be."""
        factors = (each for each in (1, self.batch) if self.benchmark.is_epoch(self.train_samples * each))
        return next(factors, 0 if self._published else 1)


def is_count(value: Any) -> bool:
    return type(value) is int and 0 < value < 2**53
