"""Which of two settings is better by a metric, and with what p-value. Pure arithmetic.

Every comparison uses the runs that the table of settings uses (`Setting.measured`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean

from conf.metric import HIGHER
from tracking.analysis.compare.censoring import UNTIL_CENSORED
from tracking.analysis.compare.eval_intervals import even
from tracking.analysis.compare.grouping import Setting, Task, seed_of
from tracking.analysis.statistics import (
    Needed,
    Often,
    Times,
    holm,
    often,
    p_sooner,
    paired_t_test,
    pilot,
    pilot_of_pairs,
    ratio_bounds,
    runs_to_tell,
    t_test,
    wins,
)
from tracking.base import quantities

ALPHA = 0.05
TIME = quantities.TIME_TO_ACCURACY_SEC


@dataclass(frozen=True)
class Comparison:
    """Two settings by one metric. `better` leads: by its mean, if every run has a value.

    - `factor`: how many times better the mean of `better` is, at least 1. It is infinite (not known) if runs of
      `better` did not reach the target, if a mean is not above 0, or if its lower bound is below 1.
    - `at_least`: the factor is a lower bound, since runs of `worse` did not reach the target.
    - `won`: if runs of `better` did not reach the target, the share of pairs of runs that `better` wins.
    - `p`: two-sided; None if a side has one run, or if a search decided with runs of a side (`searched`).
    - `often`: whether one setting reaches the target more often.
    - `paired`: runs with the same seed were compared, since both settings were made for it (`Setting.seeds`).
    """

    better: Setting
    worse: Setting
    factor: float
    p: float | None
    adjusted: float | None = None  # by Holm, over all pairs of the workload
    often: Often | None = None  # its first side is `better`
    won: float | None = None
    paired: bool = False
    at_least: bool = False

    def other_than(self, setting: Setting) -> Setting:
        """The pair's other setting."""
        return self.worse if self.better.name == setting.name else self.better

    @property
    def searched(self) -> bool:
        return self.better.searched or self.worse.searched

    @property
    def told_apart(self) -> bool:
        return self.adjusted is not None and self.adjusted < ALPHA

    @property
    def more_often(self) -> Setting | None:
        """The setting that reaches the target significantly more often, or None."""
        if self.often is None or self.often.adjusted is None or self.often.adjusted >= ALPHA:
            return None
        return self.better if self.often.first else self.worse


def compare(task: Task, key: str) -> list[Comparison]:
    """All pairs of settings that both have a value of this metric, with corrected p-values, in order of settings."""
    pairs = [compared(first, second, key) for first, second in combinations(with_values(task.settings, key), 2)]
    by_means = adjusted([pair.p for pair in pairs])
    by_shares = adjusted([pair.often.p if pair.often else None for pair in pairs])
    return [
        replace(pair, adjusted=of_means, often=pair.often and replace(pair.often, adjusted=of_shares))
        for pair, of_means, of_shares in zip(pairs, by_means, by_shares, strict=True)
    ]


def adjusted(p_values: Sequence[float | None]) -> list[float | None]:
    """The p-values after Holm's correction; None stays None."""
    corrected = iter(holm([p for p in p_values if p is not None]))
    return [None if p is None else next(corrected) for p in p_values]


def with_values(settings: Sequence[Setting], key: str) -> list[Setting]:
    """The settings that have a value or a censored run.

    Empty if no setting has both a value and a known direction of the metric.
    """
    with_value = [setting for setting in settings if setting.measured(key).n]
    return with_value if any(setting.measured(key).reached and setting.better(key) for setting in with_value) else []


def compared(first: Setting, second: Setting, key: str) -> Comparison:
    """The comparison of two settings; if they are equal, `first` leads. The metric's direction must be known."""
    pair = _tested(first, second, key)
    return replace(pair, p=None, often=None) if pair.searched else pair


def _tested(first: Setting, second: Setting, key: str) -> Comparison:
    sides = first.measured(key), second.measured(key)
    if not sides[0].num_short + sides[1].num_short:
        return _by_means(first, second, *sides, first.better(key) == HIGHER)
    leads = _leads(*(side.lower_better() for side in sides))
    better, worse = (first, second) if leads else (second, first)
    good, bad = sides if leads else sides[::-1]
    sooner, later = good.lower_better(), bad.lower_better()
    p = p_sooner(sooner, later)
    factor, won = math.inf, None
    means = fmean(good.reached) if good.reached else 0.0, fmean(bad.bounds(good))
    if good.num_short:
        won = sum(wins(sooner, later)[0]) / (good.n * bad.n)
    elif min(means) > 0:
        bound = means[0] / means[1] if good.higher else means[1] / means[0]
        # A lower bound below 1 does not say which mean is better; the margin is for rounding.
        factor = max(1.0, bound) if bound > 1 - 1e-9 else math.inf
    p = None if p is None else min(1.0, 2 * p)
    at_least = math.isfinite(factor)  # Then the runs without the target are all of `later`.
    shares = often(sooner, later) if key in UNTIL_CENSORED else None  # A loss has no target that it reaches.
    return Comparison(better, worse, factor, p, often=shares, won=won, at_least=at_least)


def _by_means(first: Setting, second: Setting, values: Times, others: Times, higher: bool) -> Comparison:
    means = fmean(values.reached), fmean(others.reached)
    leads = means[0] >= means[1] if higher else means[0] <= means[1]
    factor = max(max(means) / min(means), 1.0) if min(means) > 0 else math.inf
    paired = values.pairs_with(others)
    test = paired_t_test if paired else t_test
    p = test(values.reached, others.reached, intervals=(values.interval, others.interval))
    return Comparison(*((first, second) if leads else (second, first)), factor, p, paired=paired)


def _leads(first: Times, second: Times) -> bool:
    """Whether `first` leads: by its p-value; if equal, by reaching the target more often; then by wins of pairs."""
    p_values = p_sooner(first, second), p_sooner(second, first)
    if p_values[0] is not None and p_values[1] is not None and p_values[0] != p_values[1]:
        return p_values[0] < p_values[1]
    shares = len(first.reached) * second.n, len(second.reached) * first.n
    return (shares[0], sum(wins(first, second)[0])) >= (shares[1], sum(wins(second, first)[0]))


def factor_bounds(better: Setting, worse: Setting, key: str, level: float) -> tuple[float, float] | None:
    """Bounds of the factor by which a setting is better than another, each side at `level`.

    They invert the test that compares the settings (`statistics.ratio_bounds`). A missing bound is 0 or infinity. None
    if a side has one run, or a mean is not above 0.
    """
    sides = (better, worse) if better.better(key) == HIGHER else (worse, better)
    top, bottom = (setting.measured(key) for setting in sides)
    if min(top.n, bottom.n) < 2 or min(fmean(top.bounds(bottom)), fmean(bottom.bounds(top))) <= 0:
        return None
    return ratio_bounds(top, bottom, 1 - level, top.pairs_with(bottom))


def runs_that_would_tell(pair: Comparison, key: str, level: float) -> Needed | None:
    """How many runs of `better` and of `worse` would show the observed difference at a one-sided level.

    The power is POWER if the true difference is the observed one. None if a side has one run, the means are equal, a
    run did not reach its target, or more than MOST_RUNS would be needed.
    """
    sides = [setting.measured(key) for setting in (pair.better, pair.worse)]
    if pair.p is None or any(side.num_short for side in sides):
        return None
    first, second = (pilot(side.reached, side.interval) for side in sides)
    if pair.paired:  # the test has one sample, the differences: the second side gets no variance
        first, second = pilot_of_pairs(sides[0].reached, sides[1].reached, (first.interval, second.interval))
    return runs_to_tell(first, second, abs(first.mean - second.mean), level)


@dataclass(frozen=True)
class Factor:
    """The ratio of a quantity of a pair's better setting to the worse one's, with its two-sided p-value."""

    value: float
    p: float | None
    adjusted: float | None = None  # by Holm, over all pairs of the workload

    @property
    def told_apart(self) -> bool:
        return self.adjusted is not None and self.adjusted < ALPHA


@dataclass(frozen=True)
class Factors:
    """A pair's times to accuracy split in two: evaluations to the target x the time of an interval between them.

    The number of evaluations is a small whole number and holds nearly all of the noise. The interval's time repeats
    closely. So settings whose times do not differ significantly may still differ in their rate. `rate` is the better
    setting's rate relative to the other's, `evaluations` its number of evaluations relative to the other's.
    """

    pair: Comparison
    rate: Factor
    evaluations: Factor


def factors(pairs: Sequence[Comparison], metric: str) -> list[Factors]:
    """The factors of each pair of settings whose runs recorded their evaluations to the target, at even intervals.

    Empty unless the metric is the time to accuracy.
    """
    if metric != TIME:
        return []
    known = [(pair, parts) for pair in pairs if (parts := _rate_and_evaluations(pair)) is not None]
    rates, numbers = (adjusted([parts[place].p for _, parts in known]) for place in (0, 1))
    return [
        Factors(pair, replace(parts[0], adjusted=of_rate), replace(parts[1], adjusted=of_number))
        for (pair, parts), of_rate, of_number in zip(known, rates, numbers, strict=True)
    ]


def _rate_and_evaluations(pair: Comparison) -> tuple[Factor, Factor] | None:
    settings = (pair.better, pair.worse)
    if pair.searched or any(setting.measured(TIME).num_short for setting in settings):
        return None  # The parts of runs that reached the target would leave out those that did not.
    if not even([run for setting in settings for run in setting.trained]):
        return None  # A longer interval would be a lower rate.
    sides = [_parts(setting) for setting in settings]
    if not all(side and fmean(side[0].reached) > 0 for side in sides):
        return None
    (better, evaluations), (worse, others) = (side for side in sides if side)
    rate = fmean(worse.reached) / fmean(better.reached)
    number = fmean(evaluations.reached) / fmean(others.reached)
    whole = (evaluations.interval, others.interval)
    in_pairs = pair.paired and better.n == worse.n == pair.better.measured(TIME).n  # every run has its parts
    test = paired_t_test if in_pairs else t_test
    return (
        Factor(rate, test(better.reached, worse.reached)),
        Factor(number, test(evaluations.reached, others.reached, intervals=whole)),
    )


def _parts(setting: Setting) -> tuple[Times, Times] | None:
    """The times of an interval and the numbers of evaluations, of runs that reached the target; None without any.

    A run's interval is its time over its evaluations; older runs recorded epochs instead.
    """
    intervals, numbers = [], []
    for run in sorted(setting.trained, key=seed_of):
        number = run.metrics.get(quantities.EVALUATIONS_TO_ACCURACY, run.metrics.get(quantities.EPOCHS_TO_ACCURACY))
        if number and TIME in run.metrics:
            numbers.append(number)
            intervals.append(run.metrics[TIME] / number)
    return (Times(intervals), Times(numbers, interval=1.0)) if numbers else None
