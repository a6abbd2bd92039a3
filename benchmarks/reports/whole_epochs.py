"""Error rates of reports and gates on runs that end with whole epochs, by simulation.

    python -m benchmarks.reports.whole_epochs --trials 400 > whole_epochs.csv

Each trial draws runs and hands them to the report's and the gate's own code. A setting needs 1.6 to 19.5 epochs in the
median, rounded up for each run, with a spread of 3 or 12 % over seeds. An epoch's length varies by 0.5 to 5 % over
runs. Settings with equal means have different numbers of epochs, and epochs of different lengths. Where runs miss, are
stopped, or one is an outlier, the settings are alike. A cell's seed comes from its name.

Writes a row for each cell, with shares of its trials (binomial standard errors follow from `trials`).
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np
from scipy import stats

from tracking.analysis.compare import Setting, best_of, compare, gate_side, grouping, non_inferiority
from tracking.analysis.results import Run
from tracking.base import quantities

TIME, COST, RATE = quantities.TIME_TO_ACCURACY_SEC, quantities.COST_USD, quantities.THROUGHPUT_SAMPLES_PER_SEC
PARAMS = {"model": "vgg", "dataset": "digits", "target_metric": "accuracy", "target_value": "0.9"}
USD, JOULES = 0.01, 300.0  # a second
EQUAL, OUTLIER, STOPPED, FEW_MISS, MANY_MISS = (
    "equal",
    "one outlier",
    "20 % stopped",
    "up to 16 % miss",
    "up to 50 % miss",
)
DIFFERENT = {"2 %": 0.02, "5 %": 0.05, "10 %": 0.10}  # from the best setting to the worst
KINDS = {
    TIME: (EQUAL, *DIFFERENT, OUTLIER, STOPPED, FEW_MISS, MANY_MISS),
    COST: (EQUAL, *DIFFERENT, FEW_MISS),
    RATE: (EQUAL, *DIFFERENT),
}
MARGIN = 0.03  # of a gate
COLUMNS = ("what", "metric", "runs", "settings", "trials", "pair wrong", "best wrong", "factor missed", "right best",
           "interval of a mean missed", "gate passes", "gate fails")  # fmt: skip


class Cell(NamedTuple):
    what: str
    metric: str
    runs: int
    settings: int  # 0 for a gate


@dataclass(frozen=True)
class Truth:
    """A setting: the median epochs of its runs before rounding up, the spread of their logarithm, seconds an epoch."""

    epochs: float
    spread: float
    epoch_sec: float

    @property
    def sec(self) -> float:
        return mean_epochs(self.epochs, self.spread) * self.epoch_sec

    def value(self, metric: str) -> float:
        """The true mean of a metric, such that less is better."""
        return self.epoch_sec if metric == RATE else self.sec


@lru_cache(maxsize=64)
def mean_epochs(median: float, spread: float) -> float:
    ends = np.arange(1, math.ceil(4 * median) + 2)
    shares = np.diff(stats.norm.cdf(np.log(ends / median) / spread), prepend=0.0)
    return float(np.sum(ends * shares))


def truths(random: np.random.Generator, cell: Cell, num: int) -> list[Truth]:
    """Settings in order, from the best to the worst."""
    spread, first = float(random.choice([0.03, 0.12])), float(random.uniform(1.6, 19.5))
    made = [Truth(first, spread, 10.0)]
    for place in range(1, num):
        epochs = float(random.uniform(1.6, 19.5)) if cell.what in (EQUAL, *DIFFERENT) else first
        factor = 1 + DIFFERENT.get(cell.what, MARGIN if not cell.settings else 0.0) * place / (num - 1)
        sec = 10.0 if cell.metric == RATE else made[0].sec / mean_epochs(epochs, spread)
        made.append(Truth(epochs, spread, factor * sec))
    return made


def runs_of(random: np.random.Generator, name: str, truth: Truth, cell: Cell, noise: float) -> list[Run]:
    share = {FEW_MISS: 1.0, MANY_MISS: 0.0}.get(cell.what)
    most = math.inf if share is None else max(1, math.ceil(truth.epochs * math.exp(share * truth.spread)))
    runs = []
    for seed in range(cell.runs):
        stop = truth.sec * random.uniform(0.3, 1.2) if cell.what == STOPPED and random.random() < 0.2 else math.inf
        epochs = math.ceil(truth.epochs * math.exp(truth.spread * random.normal()))
        epoch_sec = truth.epoch_sec * math.exp(noise * random.normal() - noise**2 / 2)
        runs.append(run(name, seed, min(epochs, most), epoch_sec, epochs <= most, stop))
    return runs


def run(name: str, seed: int, epochs: float, epoch_sec: float, reaches: bool, stop: float) -> Run:
    """A run of so many epochs, unless it is stopped before."""
    stopped = stop < epochs * epoch_sec
    sec = stop if stopped else epochs * epoch_sec
    metrics = {
        quantities.TIME_CENSORED_SEC: sec, quantities.TIME_EVALUATION_INTERVAL_SEC: epoch_sec, COST: USD * sec,
        quantities.ENERGY_JOULES: JOULES * sec, quantities.EPOCHS_TRAINED: sec / epoch_sec, RATE: 1e4 / epoch_sec,
    }  # fmt: skip
    if not stopped:
        metrics |= {quantities.TARGET_REACHED: float(reaches), quantities.EPOCHS_TRAINED: float(epochs)}
    if reaches and not stopped:
        metrics |= {TIME: sec, quantities.EPOCHS_TO_ACCURACY: epochs, quantities.EVALUATIONS_TO_ACCURACY: epochs}
        metrics |= {quantities.COST_TO_ACCURACY_USD: USD * sec, quantities.ENERGY_TO_ACCURACY_JOULES: JOULES * sec}
    tags = {"failure": "timeout"} if stopped else {}
    params = PARAMS | {"setting": name, "seed": str(seed)}
    return Run(f"{name} {seed}", name, "", "FAILED" if stopped else "FINISHED", 0, 1, params, tags, metrics)


def with_outlier(random: np.random.Generator, runs: list[Run]) -> list[Run]:
    """One of the runs takes three times its epochs."""
    place = int(random.integers(len(runs)))
    chosen = runs[place]
    epochs, epoch_sec = (
        chosen.metrics[key] for key in (quantities.EPOCHS_TRAINED, quantities.TIME_EVALUATION_INTERVAL_SEC)
    )
    runs[place] = run(chosen.name, int(chosen.params["seed"]), 3 * epochs, epoch_sec, True, math.inf)
    return runs


def report_of(random: np.random.Generator, cell: Cell) -> Counter[str]:
    """What a report of one sweep gets wrong and right."""
    true = dict(zip("abcdef", truths(random, cell, cell.settings), strict=False))
    noise = float(np.exp(random.uniform(math.log(0.005), math.log(0.05))))
    runs = [each for name, truth in true.items() for each in runs_of(random, name, truth, cell, noise)]
    runs = with_outlier(random, runs) if cell.what == OUTLIER else runs
    [task] = grouping.group(runs, ["setting"], lambda run, axis: run.params[axis])
    pairs, values = compare(task, cell.metric), {name: truth.value(cell.metric) for name, truth in true.items()}
    worse = [values[_name(pair.better)] >= values[_name(pair.worse)] * (1 - 1e-9) for pair in pairs if pair.told_apart]
    counts, least = Counter({"pair wrong": any(worse)}), min(values.values())
    if best := best_of(task.settings, pairs, cell.metric):
        alone = len(best.candidates) == 1
        right = (
            sum(value < least * (1 + 1e-9) for value in values.values()) == 1 and values[_name(best.leader)] == least
        )
        counts.update({"best wrong": alone and not right, "right best": alone and right})
        if best.next and best.bounds and cell.what in (EQUAL, *DIFFERENT):
            other, own = (values[_name(each)] for each in (best.next.other_than(best.leader), best.leader))
            low, high = best.bounds
            counts["factor missed"] = not low * (1 - 1e-9) <= other / own <= high * (1 + 1e-9)
    if cell.what == EQUAL and cell.metric == TIME:
        counts["interval of a mean missed"] = _mean_missed(task.settings[0].values(TIME), true["a"].sec)
    return counts


def _name(setting: Setting) -> str:
    return setting.labels["setting"]


def _mean_missed(values: Sequence[float], true: float) -> bool:
    """Whether Student's 95 % interval, from the standard error alone, misses the true mean."""
    half = float(stats.t.ppf(0.975, len(values) - 1)) * float(stats.sem(values))
    return abs(float(np.mean(values)) - true) > half


def gate_of(random: np.random.Generator, cell: Cell) -> Counter[str]:
    """A gate's verdict on a candidate: slower by exactly the margin or, with misses, equal and without a margin."""
    noise = float(np.exp(random.uniform(math.log(0.005), math.log(0.05))))
    baseline, candidate = truths(random, cell, 2)
    if cell.what != EQUAL:
        candidate = baseline
    first, second = (
        gate_side.side_of(runs_of(random, name, truth, cell, noise), cell.metric)
        for name, truth in (("a", baseline), ("b", candidate))
    )
    code = non_inferiority.decide(first, second, cell.metric, MARGIN if cell.what == EQUAL else 0.0).code
    return Counter({"gate passes": code == non_inferiority.NOT_SLOWER, "gate fails": code == non_inferiority.SLOWER})


def cells() -> Iterator[Cell]:
    for metric, kinds in KINDS.items():
        for what in kinds:
            yield from (Cell(what, metric, runs, num) for runs in (2, 3, 5) for num in (2, 3, 6))
        for what in (EQUAL,) if metric == RATE else (EQUAL, STOPPED, FEW_MISS, MANY_MISS):
            yield from (Cell(what, metric, runs, 0) for runs in (2, 3, 5))


def row(cell: Cell, trials: int) -> Mapping[str, Any]:
    random, counts = np.random.default_rng(zlib.crc32(repr(tuple(cell)).encode())), Counter[str]()
    for _ in range(trials):
        counts.update(report_of(random, cell) if cell.settings else gate_of(random, cell))
    return {**cell._asdict(), "trials": trials, **{key: count / trials for key, count in counts.items()}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=400, help="trials of each cell (%(default)s)")
    trials = parser.parse_args().trials
    writer = csv.DictWriter(sys.stdout, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for cell in cells():
        writer.writerow(row(cell, trials))
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
