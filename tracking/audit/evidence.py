"""What the journals say of the runs of a report: which count, in which setting, and their means and tests."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy

from tracking.audit.run_figures import BEST, COMPUTED, JournalFigures

# Step times are journaled to a tenth of a microsecond: rates computed from them are that coarse.
EXACT, COARSE = 1e-9, 1e-4
NUMBER = r"-?[\d,]+(?:\.\d+)?"
DEVICES = {"gpus", "nodes", "cpu_processes"}
# A setting's value of each axis.
Labels = Mapping[str, str]
# In this order: n, mean, standard error, olympic mean.
Moments = tuple[int, float, float | None, float | None]


@dataclass
class Outcome:
    num_runs: int = 0
    num_figures: int = 0
    differences: list[str] = field(default_factory=list)

    def note(self, good: bool, sentence: str) -> None:
        """Count a figure that was compared, and keep the sentence where it is not good."""
        self.num_figures += 1
        if not good:
            self.differences.append(sentence)


class Evidence:
    """The journals of the runs that a report (its JSON) is about."""

    def __init__(self, report: Mapping[str, Any], roots: Sequence[Path]) -> None:
        self.report = report
        self.claimed = {run["id"]: run for run in [*report["runs"], *report["excluded"]]}
        ids = {run["uid"]: run_id for run_id, run in self.claimed.items()}
        self.runs: dict[str, JournalFigures] = {}
        self._settings: dict[tuple[Any, ...], dict[str, JournalFigures]] = {}
        for path in (path for root in roots for path in root.rglob("run.json")):
            try:
                uid = str(json.loads(path.read_text(encoding="utf-8")).get("uid"))
            except (ValueError, AttributeError, OSError, RecursionError):
                # It is damaged, or a stranger's; if the report is about its run, that will be missed.
                continue
            if uid in ids and (path.parent / "journal.jsonl").exists():
                self.runs[ids[uid]] = JournalFigures(path.parent)

    def counts(self, run: JournalFigures) -> bool:
        return run.counts(with_missed=self.report["with_missed"])

    def members(self, workload: str) -> list[str]:
        return [run_id for run_id in self.runs if self.claimed[run_id]["workload"] == workload]

    def settings(self, workload: str) -> list[Labels]:
        """Every setting of which the workload has a run, whether it counts or not."""
        axes = self.report["by"]
        labels = {tuple(self.runs[run_id].label(axis) for axis in axes) for run_id in self.members(workload)}
        return [dict(zip(axes, values, strict=True)) for values in sorted(labels)]

    def all_of(self, workload: str, setting: Labels) -> dict[str, JournalFigures]:
        """By run id, every run of a setting."""
        key = (workload, *setting.items())
        if key not in self._settings:
            members = ((run_id, self.runs[run_id]) for run_id in self.members(workload))
            self._settings[key] = {run_id: run for run_id, run in members if run.belongs(setting)}
        return self._settings[key]

    def counting(self, workload: str, setting: Labels) -> dict[str, JournalFigures]:
        return {run_id: run for run_id, run in self.all_of(workload, setting).items() if self.counts(run)}

    def values(self, workload: str, setting: Labels, key: str) -> dict[str, float]:
        """By run id, a figure of every run of the setting that counts, whoever the report averaged."""
        values = {run_id: run.value(key) for run_id, run in self.counting(workload, setting).items()}
        return {run_id: value for run_id, value in values.items() if value is not None}

    def measured(self, workload: str, setting: Labels, key: str) -> dict[str, float]:
        """By run id, a figure of a table of settings: of a rate or a best value, runs that missed the target too."""
        if not of_any_run(key):
            return self.values(workload, setting, key)
        values = {run_id: run.value(key) for run_id, run in self.ended(workload, setting).items()}
        return {run_id: value for run_id, value in values.items() if value is not None}

    def ended(self, workload: str, setting: Labels) -> dict[str, JournalFigures]:
        """By run id, every run of a setting that trained to its end, wherever that was."""
        return {run_id: run for run_id, run in self.all_of(workload, setting).items() if run.counts(with_missed=True)}

    def spent_usd(self, workload: str) -> float:
        """The cost of the runs that count."""
        counting = [run for run_id in self.members(workload) if self.counts(run := self.runs[run_id])]
        return math.fsum(run.value("cost/usd") or 0.0 for run in counting)

    def devices(self, workload: str, setting: Labels) -> float | None:
        counts = {run.devices() for run in self.counting(workload, setting).values()}
        return counts.pop() if len(counts) == 1 else None

    def base(self, workload: str, setting: Labels, settings: Sequence[Labels]) -> Labels | None:
        """Among settings that are otherwise the same, the one of the fewest devices; None where all have as many."""
        same = [one for one in settings if self.devices(workload, one) and rest(one) == rest(setting)]
        counts = {self.devices(workload, one) for one in same}
        if len(counts) < 2 or self.devices(workload, setting) is None:
            return None
        return min(same, key=lambda one: self.devices(workload, one) or math.inf)

    def pairs(self, workload: str, settings: Sequence[Labels]) -> dict[frozenset[str], Pair]:
        """Every pair of settings that have the report's metric, by their names."""
        key = self.report["metric"]
        values = {name_of(one): [*self.values(workload, one, key).values()] for one in settings}
        names = [name for name, numbers in values.items() if numbers]
        found = {}
        for place, name in enumerate(names):
            for other in names[place + 1 :]:
                ordered = sorted((name, other), key=lambda one: numpy.mean(values[one]), reverse=is_rate(key))
                means = sorted(float(numpy.mean(values[one])) for one in ordered)
                p = t_test(values[name], values[other], step(key))
                found[frozenset(ordered)] = Pair(ordered[0], means[1] / means[0], p)
        ranked = sorted(pair.p for pair in found.values() if pair.p is not None)
        for pair in found.values():
            pair.corrected = None if pair.p is None else corrected(ranked, pair.p)
        return found


@dataclass
class Pair:
    better: str
    factor: float
    p: float | None
    corrected: float | None = None

    @property
    def told_apart(self) -> bool:
        return self.corrected is not None and self.corrected < 0.05


def is_rate(key: str) -> bool:
    return key.startswith("throughput/samples")


def of_any_run(key: str) -> bool:
    return key in ("time/epoch_sec", "epochs/trained") or key.startswith(("throughput/", BEST))


def tolerance(key: str) -> float:
    return COARSE if key.startswith("throughput/") else EXACT


def computable(key: str) -> bool:
    return key in COMPUTED or key.startswith(BEST)


def step(key: str) -> float:
    """How far apart two values are at the least: epochs are counted, all else is measured."""
    return 1.0 if key.startswith("epochs/") else 0.0


def rest(setting: Labels) -> Labels:
    return {axis: value for axis, value in setting.items() if axis not in DEVICES}


def name_of(setting: Labels) -> str:
    return " ".join(f"{axis}={value}" for axis, value in setting.items())


def moments(values: Sequence[float]) -> Moments:
    n = len(values)
    middle = float(numpy.mean(values))
    error = float(numpy.std(values, ddof=1) / numpy.sqrt(n)) if n > 1 else None
    return n, middle, error, float(numpy.mean(numpy.sort(values)[1:-1])) if n >= 5 else None


def ratio(key: str, values: Mapping[str, float], base: Mapping[str, float], growth: float) -> Moments:
    """Speed-up over the base, divided by the growth (1, or of an efficiency that of the devices); relative variances
    of two independent means add."""
    if set(values) == set(base):
        return len(values), 1.0, None, None
    (n, own, own_error, _), (m, other, other_error, _) = moments([*values.values()]), moments([*base.values()])
    factor = (own / other if is_rate(key) else other / own) / growth
    if own_error is None or other_error is None:
        return min(n, m), factor, None, None
    return min(n, m), factor, factor * math.sqrt((own_error / own) ** 2 + (other_error / other) ** 2), None


def t_test(first: Sequence[float], second: Sequence[float], step: float) -> float | None:
    """Two-sided: the larger of Welch's and of Student's standard error, the smaller side's degrees of freedom."""
    from scipy.special import stdtr

    sizes = numpy.array([len(first), len(second)])
    if sizes.min() < 2:
        return None
    variances = _variances(first, second, step)
    distance = abs(float(numpy.mean(first) - numpy.mean(second)))
    pooled = (sizes - 1) @ variances / (sizes.sum() - 2)
    squared = max(float((variances / sizes).sum()), float((pooled / sizes).sum()))
    if squared <= (1e-12 * float(numpy.mean(first))) ** 2:  # nothing but rounding
        return 1.0 if distance <= 1e-12 * abs(float(numpy.mean(first))) else 0.0
    return float(2 * stdtr(int(sizes.min()) - 1, -distance / math.sqrt(squared)))


def _variances(first: Sequence[float], second: Sequence[float], step: float) -> numpy.ndarray:
    """At least those of values rounded to steps."""
    return numpy.array([max(numpy.var(side, ddof=1), step**2 / 12) for side in (first, second)])


def would_tell(n: int, first: Sequence[float], second: Sequence[float], step: float, num_tests: int) -> bool:
    """Whether n runs a side are the fewest, and more than there are, whose two-sided test would tell these means apart.

    In four cases of five, were they the true ones, at the level of the hardest of so many tests; to a thousandth, as a
    noncentral t is computed in several ways. Never of a side of one run, or of runs that cannot scatter.
    """
    from scipy.special import nctdtr, stdtrit

    if min(len(first), len(second)) < 2 or not _variances(first, second, step).any():
        return False
    variance = float(_variances(first, second, step).sum())
    distance = abs(float(numpy.mean(first) - numpy.mean(second)))

    def power(n: int) -> float:
        needed = stdtrit(n - 1, 1 - 0.05 / (2 * num_tests))
        return 1.0 - float(nctdtr(n - 1, distance / math.sqrt(variance / n), needed))

    least = 1 + min(len(first), len(second))
    return n >= least and power(n) > 0.799 and (n == least or power(n - 1) < 0.801)


def corrected(ranked: Sequence[float], p: float) -> float:
    """Holm: the largest of (number of tests not yet rejected) x p over this and all smaller p-values."""
    return min(1.0, max((len(ranked) - place) * one for place, one in enumerate(ranked) if one <= p))


def close(claimed: float | None, expected: float | None, near: float, size: float) -> bool:
    if claimed is None or expected is None:
        return claimed is expected
    return math.isclose(claimed, expected, rel_tol=near, abs_tol=near * abs(size))


def printed(text: str, numbers: Sequence[float | None], near: float) -> bool:
    """Whether the words say these numbers, rounded to the digits that they show."""
    shown = re.findall(NUMBER, text)
    there = [number for number in numbers if number is not None]
    if len(shown) != len(there):
        return False
    for words, number in zip(shown, there, strict=True):
        half_a_digit = 0.5 * 10.0 ** -len(words.partition(".")[2])
        if abs(float(words.replace(",", "")) - number) > half_a_digit * (1 + 1e-6) + near * abs(number):
            return False
    return True


def significant(text: str, number: float | None, digits: int, near: float) -> bool:
    """Whether the text is the number, rounded to so many significant digits."""
    if number is None or not text:
        return number is None and not text
    unit = 10.0 ** (math.floor(math.log10(abs(number))) - digits + 1) if number else 0.0
    return abs(float(text) - number) <= 0.5 * unit * (1 + 1e-6) + near * max(abs(number), 1.0)
