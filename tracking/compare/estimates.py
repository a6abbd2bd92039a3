"""Means of repeated runs with their uncertainty, speed-ups, and which settings can be told apart. Pure arithmetic."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from statistics import fmean

from tracking.compare.grouping import DEVICES, Setting, Task
from tracking.compare.metric_direction import higher_is_better
from tracking.statistics import (
    Often,
    Times,
    holm,
    lead,
    mean_and_standard_error,
    means,
    often,
    olympic_mean,
    p_sooner,
    repeats_to_tell,
    t_test,
)  # fmt: skip

ALPHA = 0.05
EQUAL = 1e-12  # means are, whose factor exceeds one by less
POWER = 0.8
OLYMPIC_FROM = 5  # runs, as in MLPerf's vision benchmarks


@dataclass(frozen=True)
class Estimate:
    """A mean of `n` runs, its standard error (None for one run), and from five runs on MLPerf's olympic mean.

    `bound` is "≥" or "≤" where the true one is at least or at most that, since runs did not get to their target. Of
    those the olympic mean has room for one (`invalid`: there are more).
    """

    mean: float
    error: float | None
    n: int
    olympic: float | None = None
    bound: str = ""
    invalid: bool = False

    def text(self, row_n: int | None = None, unit: str = "") -> str:
        """To two digits of the error, with the unit; with n where it is not that of the row."""
        decimals = self.decimals()
        shown = f"{self.bound} {self.mean:,.{decimals}f}".lstrip()
        if self.error is not None:
            shown += f" ± {self.error:,.{decimals}f}"
        shown += unit
        if self.olympic is not None:
            shown += f" (olympic {self.olympic:,.{decimals}f})"
        if self.invalid:
            shown += " (olympic invalid: several missed)"
        return shown if row_n is None or row_n == self.n else f"{shown} (n={self.n})"

    def decimals(self) -> int:
        digits = 3 - _magnitude(self.mean)  # four digits of the mean where there is no error to go by
        if self.error:
            digits = min(1 - _magnitude(self.error), 5 - _magnitude(self.mean))
        return max(0, digits)


def _magnitude(value: float) -> int:
    return math.floor(math.log10(abs(value))) if value and math.isfinite(value) else 0


def estimate(times: Times, scale: float = 1.0) -> Estimate | None:
    """The mean; at least that, where runs did not get there. None where no value is known.

    MLPerf's training rules: a run that does not converge is the slowest, and of several the result is invalid.
    """
    scaled = times.scaled(scale)
    known = scaled.at_least(scaled.latest)
    if not (scaled.reached or scaled.censored):
        return None
    enough, missed = len(known) >= OLYMPIC_FROM, scaled.num_short
    olympic = olympic_mean([*scaled.reached, *[math.inf] * missed]) if enough and missed < 2 else None
    bound = "≥" if missed else ""
    return Estimate(*mean_and_standard_error(known), len(known), olympic, bound, enough and missed > 1)


def ratio(top: Estimate, bottom: Estimate) -> Estimate | None:
    """The ratio of two means; its standard error by first-order propagation of theirs, where both have one.

    None where a mean is 0, and where both are at least so large: then nothing is known of their ratio.
    """
    if not bottom.mean or not top.mean or (top.bound and bottom.bound):
        return None
    bound = top.bound or {"≥": "≤"}.get(bottom.bound, "")
    value = top.mean / bottom.mean
    error = None
    if top.error is not None and bottom.error is not None:
        error = abs(value) * math.hypot(top.error / top.mean, bottom.error / bottom.mean)
    return Estimate(value, error, min(top.n, bottom.n), bound=bound)


def base_of(setting: Setting, settings: Sequence[Setting]) -> Setting | None:
    """The setting of the fewest devices that is otherwise the same; None where no other count is there."""
    others = {key: value for key, value in setting.labels.items() if key not in DEVICES}
    same = [
        candidate
        for candidate in settings
        if candidate.devices and {key: value for key, value in candidate.labels.items() if key not in DEVICES} == others
    ]
    if setting.devices is None or len({candidate.devices for candidate in same}) < 2:
        return None
    return min(same, key=lambda candidate: candidate.devices or 0)


def speed_up(setting: Setting, base: Setting, key: str) -> tuple[Estimate, Estimate] | None:
    """Speed-up over the base setting by this metric, and efficiency: the speed-up over the growth of the devices.

    The base is 1 by definition, without an error.
    """
    own, of_base = estimate(setting.times(key)), estimate(base.times(key))
    if own is None or of_base is None or not setting.devices or not base.devices:
        return None
    if setting is base:
        return Estimate(1.0, None, own.n), Estimate(1.0, None, own.n)
    gain = ratio(own, of_base) if higher_is_better(key) else ratio(of_base, own)
    if gain is None:
        return None
    growth = setting.devices / base.devices
    error = None if gain.error is None else gain.error / growth
    return gain, Estimate(gain.mean / growth, error, gain.n, bound=gain.bound)


@dataclass(frozen=True)
class Comparison:
    """Two settings by one metric: `better` is the one with the better mean; p-values of `statistics.t_test`.

    `factor` is how many times better its mean is, 1 at least; p is None where a side has one run. Where runs did not
    get to their target, all three are as in `time_to_event`, and `often` says whether one gets there more often.
    """

    better: Setting
    worse: Setting
    factor: float
    p: float | None
    adjusted: float | None = None  # by Holm, over all pairs of the workload
    often: Often | None = None  # its first side is `better`

    @property
    def told_apart(self) -> bool:
        return self.adjusted is not None and self.adjusted < ALPHA

    @property
    def more_often(self) -> Setting | None:
        """The setting that reaches the target more often; None where that is not sure."""
        if self.often is None or self.often.adjusted is None or self.often.adjusted >= ALPHA:
            return None
        return self.better if self.often.first else self.worse


def compare(task: Task, key: str) -> list[Comparison]:
    """All pairs of settings of which something is known by this metric, with corrected p-values, if a run has it.

    In order of the settings.
    """
    pairs = [compared(first, second, key) for first, second in combinations(_with_values(task, key), 2)]
    by_means = _adjusted([pair.p for pair in pairs])
    by_shares = _adjusted([pair.often.p if pair.often else None for pair in pairs])
    return [
        replace(pair, adjusted=of_means, often=pair.often and replace(pair.often, adjusted=of_shares))
        for pair, of_means, of_shares in zip(pairs, by_means, by_shares, strict=True)
    ]


def _adjusted(p_values: Sequence[float | None]) -> list[float | None]:
    adjusted = iter(holm([p for p in p_values if p is not None]))
    return [None if p is None else next(adjusted) for p in p_values]


def _with_values(task: Task, key: str) -> list[Setting]:
    there = [setting for setting in task.settings if setting.times(key).n]
    return there if any(setting.times(key).reached for setting in there) else []


def compared(first: Setting, second: Setting, key: str) -> Comparison:
    """Which of two settings is the better one, and how sure that is. Of equals it is the first."""
    first_times, second_times = first.times(key), second.times(key)
    higher = higher_is_better(key)
    if higher:
        better, worse = (
            (first, second) if fmean(first_times.reached) >= fmean(second_times.reached) else (second, first)
        )
        low, high = sorted((fmean(first_times.reached), fmean(second_times.reached)))
    else:
        better, worse = (
            (first, second) if lead(first_times, second_times) >= lead(second_times, first_times) else (second, first)
        )
        low, high = means(better.times(key), worse.times(key))
    factor = max(high / low, 1.0) if low > 0 else math.inf
    sides = better.times(key), worse.times(key)
    if not first_times.num_short + second_times.num_short:
        p = t_test(
            first_times.reached, second_times.reached, resolution=max(first_times.interval, second_times.interval)
        )
    else:
        p = p_sooner(*sides)
        p = None if p is None else min(1.0, 2 * p)
    return Comparison(better, worse, factor, p, often=often(*sides))


def repeats(pair: Comparison, key: str, num_pairs: int, level: Callable[[int], float] | None = None) -> int | None:
    """How many runs a side would tell a pair that is not told apart, if it truly differs as much as it seems to.

    With probability POWER, by the spread observed, at the level of the hardest of so many corrected tests, or at a
    `level` that is less strict, by the degrees of freedom. None where a side has one run, where the means are equal,
    where a run did not get to its target, and where it would take more runs than anybody makes.
    """
    sides = [setting.times(key) for setting in (pair.better, pair.worse)]
    missed = any(side.num_short for side in sides)
    if pair.told_apart or pair.p is None or not math.isfinite(pair.factor) or missed:
        return None
    low, high = sorted((pair.better.values(key), pair.worse.values(key)), key=fmean)
    interval = max(side.interval for side in sides)
    search = partial(repeats_to_tell, high, low, 1.0, pair.factor, power=POWER, resolution=interval)
    needed = search(lambda freedom: ALPHA / (2 * num_pairs))
    if needed is not None and level is not None:  # it is slow, and needs no more than this and no fewer than one test
        needed = search(level, between=(search(lambda freedom: ALPHA / 2) or needed, needed))
    return None if needed is None else max(needed, 1 + min(len(low), len(high)))


def best(task: Task, key: str) -> Setting | None:
    """The setting with the best mean of this metric; whether it can be told from the next is another question.

    Where runs did not get to their target, it is the one that leads most others (`standing`).
    """
    there = _with_values(task, key)
    order = standing([compared(first, second, key) for first, second in combinations(there, 2)])
    return max(there, key=lambda setting: order.get(setting.name, (0, 0)), default=None)


def standing(pairs: Sequence[Comparison]) -> dict[str, tuple[int, int]]:
    """By a setting's name, in how many of the pairs its mean is the better one whatever the runs that did not get to
    their target would have come to, and in how many it is called the better one. The larger leads."""
    sure = Counter(pair.better.name for pair in pairs if pair.factor - 1 > EQUAL)
    called = Counter(pair.better.name for pair in pairs)
    return {name: (sure[name], number) for name, number in called.items()}


def main_metric(tasks: Sequence[Task]) -> str:
    """What settings are compared by: time to accuracy where a run has a target, else the rate, else training time."""
    keys = ("time/to_accuracy_sec", "throughput/samples_per_sec", "time/train_sec")
    there: Mapping[str, bool] = {
        key: any(setting.runs_of(key) for task in tasks for setting in task.settings) for key in keys
    }
    return next((key for key in keys if there[key]), keys[0])
