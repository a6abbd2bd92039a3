"""MLPerf's benchmarks by their name in a log: targets, numbers of runs, and the unit of their epoch numbers.

mlperf_benchmarks.csv has a row for each benchmark and the rounds that share it. In its last column, `rules COMMIT` is a
commit of github.com/mlcommons/training_policies, training_rules.adoc, sections "Benchmark Results", "Closed Division"
and on epoch reporting (`hpc rules`: hpc_training_rules.adoc). `checker RULESET` and `result_summarizer` refer to
github.com/mlcommons/logging. Sizes of datasets come from the published logs.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from conf.target import AT_LEAST, AT_MOST, Target, is_at_most, limit, parse
from tracking.measure.programs.mlperf_lines import Entry, metric_of
from tracking.record import typed_json

TABLE_CSV = Path(__file__).with_name("mlperf_benchmarks.csv")
METRICS = {"BBOX": "box_map", "SEGM": "mask_map", "FID": "fid", "CLIP": "clip"}  # MLPerf's names, and ours
PERCENT_ABOVE = 1.0  # BLEU above this is in percent, and so is its target
OTHER_NAMES = {"mask": "maskrcnn"}  # Google's name in v0.6
ROUNDS = {"v0.5": 0.5, "v0.6": 0.6}  # rounds with their own format of a log's lines; all later ones share one
FIRST_CONVERGED = {"ncf": 50}  # v0.5: "Run 100, use first 50 that converge"
EPOCH_TOLERANCE = 0.03  # the share by which a last batch or a filter may change an epoch's samples


@dataclass(frozen=True)
class Benchmark:
    """A row of the table. `runs` is 0 for a benchmark that is not in the table.

    `model`, `dataset` and the keys of `targets` are our names. A result is the mean of `runs` runs without the
    `dropped` fastest and slowest. If `converged` is not 0, it is the mean of the first `converged` runs that converge.
    `counts` is the unit of epoch_num: epochs, fractions of one, samples, tokens, or iterations of something else.
    """

    name: str
    model: str
    dataset: str
    rounds: str = ""
    targets: Mapping[str, Target] = field(default_factory=dict)
    runs: int = 0
    dropped: int = 1
    counts: str = "epochs"
    epoch_samples: tuple[int, int] | None = None  # least and most
    opt_name: str = ""
    last_year: int | None = None
    batch_below: int | None = None

    @property
    def has_epochs(self) -> bool:
        return self.counts in ("epochs", "fractions")

    @property
    def converged(self) -> int:
        return FIRST_CONVERGED.get(self.name, 0)

    def covers(self, round_: float) -> bool:
        """Whether the row covers this round of MLPerf, such as 2.0."""
        first, last = _span(self.rounds) if self.rounds else (0.0, 0.0)
        return first <= round_ <= last

    def may_include(self, round_: str, opt_name: str, batch: int, year: int) -> bool:
        """Whether a log may belong to the row. `round_` is "" for v0.7 and later, `batch` 0 if not known."""
        first, last = _span(self.rounds)
        in_round = first <= ROUNDS[round_] <= last if round_ else last > max(ROUNDS.values())
        return (
            in_round
            and self.opt_name in ("", opt_name)
            and (self.last_year is None or year <= self.last_year)
            and (self.batch_below is None or 0 < batch < self.batch_below)
        )

    def is_epoch(self, samples: int) -> bool:
        """Whether an epoch may have this number of samples; True if the table does not say."""
        if self.epoch_samples is None:
            return True
        low, high = self.epoch_samples
        return low * (1 - EPOCH_TOLERANCE) <= samples <= high * (1 + EPOCH_TOLERANCE)

    def targets_of(
        self, evaluations: Sequence[Mapping[str, Any]], log_target: float | None, requested: Target | None = None
    ) -> dict[str, Target]:
        """The targets of a log: the `requested` one, else the log's own, else MLPerf's.

        A number without a sign is a limit on the same side as MLPerf's. For a benchmark that is not in the table, the
        log's number gives no target, since its side is not known. `evaluations` are values by our names.
        """
        metric, target = next(iter(self.targets.items()), ("accuracy", 0.0))
        side = AT_MOST if is_at_most(target) else AT_LEAST
        if requested is not None:
            return {metric: requested if is_at_most(requested) else parse(f"{side}{requested}")}
        if log_target is not None and self.runs and len(self.targets) < 2:
            return {metric: parse(f"{side}{log_target}")}
        bleus = [values["bleu"] for values in evaluations if typed_json.is_number(values.get("bleu"))]
        in_percent = any(bleu > PERCENT_ABOVE for bleu in bleus)
        return {name: 100 * limit(value) if in_percent else value for name, value in self.targets.items()}

    @property
    def num_conditions(self) -> int:
        return sum(map(bool, (self.opt_name, self.last_year, self.batch_below)))


def by_our_names(entry: Entry, benchmark: Benchmark, has_several_metrics: bool) -> Entry:
    """An evaluation with its metrics as a mapping by our names.

    The only metric of a log counts as the target's, under any name. `has_several_metrics`: the log has more than one.
    """
    names = list(benchmark.targets) or ["accuracy"]
    log_name, value = metric_of(entry), entry.value
    if isinstance(value, list) and len(value) == len(names) > 1:  # v0.6: boxes, masks
        values = dict(zip(names, value, strict=True))
    else:
        values = value if isinstance(value, dict) else {log_name or names[0]: value}
        if len(names) == len(values) == 1 and not has_several_metrics:
            values = {names[0]: next(iter(values.values()))}
        values = {METRICS.get(key, key): number for key, number in values.items()}
    return replace(entry, value=values, metadata={**entry.metadata, "metric": METRICS.get(log_name, log_name)})


@lru_cache(maxsize=256)
def benchmark(name: str, round_: str = "", opt_name: str = "", batch: int = 0, year: int = 9999) -> Benchmark:
    """The row of a log: the matching row with the most conditions, else the newest row of that name.

    A name that is not in the table gives a benchmark with only its name.
    """
    key = OTHER_NAMES.get(name.lower(), name.lower())
    rows = [row for row in table() if row.name == key]
    matching = [row for row in rows if row.may_include(round_, opt_name, batch, year)]
    return max(matching or rows[-1:], key=lambda row: row.num_conditions, default=Benchmark(key, key, "mlperf"))


@cache
def table() -> tuple[Benchmark, ...]:
    with TABLE_CSV.open(encoding="utf-8", newline="") as file:
        return tuple(_row(row) for row in csv.DictReader(file))


def _row(row: Mapping[str, str]) -> Benchmark:
    split = [re.split("(?=[<>]=)", target) for target in row["targets"].split()]
    sizes = [int(size) for size in row["epoch_samples"].split("-") if size]
    return Benchmark(
        name=row["name"],
        model=row["model"],
        dataset=row["dataset"],
        rounds=row["rounds"],
        targets={metric: parse(limit) for metric, limit in split},
        runs=int(row["runs"]),
        dropped=int(row["dropped"]),
        counts=row["counts"],
        epoch_samples=(sizes[0], sizes[-1]) if sizes else None,
        opt_name=row["opt_name"],
        last_year=int(row["last_year"]) if row["last_year"] else None,
        batch_below=int(row["batch_below"]) if row["batch_below"] else None,
    )


def _span(rounds: str) -> tuple[float, float]:
    numbers = [float(number) for number in re.findall(r"v(\d+\.\d+)", rounds)]
    return numbers[0], numbers[-1]
