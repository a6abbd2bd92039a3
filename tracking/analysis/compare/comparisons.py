"""Which of two settings is the better one by a metric, and how sure that is. Pure arithmetic.

Every comparison uses the runs that the table of settings uses (`Setting.measured`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean

from conf.metric import HIGHER
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
    """Two settings by one metric: `better` is the one that leads, by its mean where every run has a value.

    `factor` is how many times better the mean is, 1 at least. Where runs of `worse` did not reach the target, it is
    that at least; where runs of `better` did not, or a mean is not above 0, it is infinite: nothing is known of it.
    `won` is then the share of pairs of runs in which that of `better` is known to be the sooner one. `p` is two-sided;
    None where a side has one run. `often` says whether one of them reaches the target more often. `paired`: runs of the
    same seed were compared, since both settings were made for that and have the same seeds (`Setting.seeds`).
    """

    better: Setting
    worse: Setting
    factor: float
    p: float | None
    adjusted: float | None = None  # by Holm, over all pairs of the workload
    often: Often | None = None  # its first side is `better`
    won: float | None = None
    paired: bool = False

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
    """All pairs of settings with values of this metric, with corrected p-values, in order of the settings."""
    pairs = [compared(first, second, key) for first, second in combinations(with_values(task.settings, key), 2)]
    by_means = adjusted([pair.p for pair in pairs])
    by_shares = adjusted([pair.often.p if pair.often else None for pair in pairs])
    return [
        replace(pair, adjusted=of_means, often=pair.often and replace(pair.often, adjusted=of_shares))
        for pair, of_means, of_shares in zip(pairs, by_means, by_shares, strict=True)
    ]


def adjusted(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's correction of those that are there."""
    corrected = iter(holm([p for p in p_values if p is not None]))
    return [None if p is None else next(corrected) for p in p_values]


def with_values(settings: Sequence[Setting], key: str) -> list[Setting]:
    """The settings that have a value, or a run that did not come to one.

    None where no run of any has a value, or where it is not known which way is better.
    """
    there = [setting for setting in settings if setting.measured(key).n]
    return there if any(setting.measured(key).reached and setting.better(key) for setting in there) else []


def compared(first: Setting, second: Setting, key: str) -> Comparison:
    """Which of two settings leads, and how sure that is. Of equals it is the first. A way has to be better."""
    sides = first.measured(key), second.measured(key)
    if not sides[0].num_short + sides[1].num_short:
        return _by_means(first, second, *sides, first.better(key) == HIGHER)
    better, worse = (first, second) if _leads(*sides) else (second, first)
    sooner, later = better.measured(key), worse.measured(key)
    p = p_sooner(sooner, later)
    factor, won = math.inf, None
    if sooner.num_short:
        won = sum(wins(sooner, later)[0]) / (sooner.n * later.n)
    elif fmean(sooner.reached) > 0:
        factor = max(1.0, fmean(later.at_least(max(sooner.latest, later.latest))) / fmean(sooner.reached))
    p = None if p is None else min(1.0, 2 * p)
    return Comparison(better, worse, factor, p, often=often(sooner, later), won=won)


def _by_means(first: Setting, second: Setting, values: Times, others: Times, higher: bool) -> Comparison:
    means = fmean(values.reached), fmean(others.reached)
    leads = means[0] >= means[1] if higher else means[0] <= means[1]
    factor = max(max(means) / min(means), 1.0) if min(means) > 0 else math.inf
    paired = values.pairs_with(others)
    test = paired_t_test if paired else t_test
    p = test(values.reached, others.reached, intervals=(values.interval, others.interval))
    return Comparison(*((first, second) if leads else (second, first)), factor, p, paired=paired)


def _leads(first: Times, second: Times) -> bool:
    """Whether `first` is the sooner one by its p-value; else reaches the target more often; else wins more pairs."""
    p_values = p_sooner(first, second), p_sooner(second, first)
    if p_values[0] is not None and p_values[1] is not None and p_values[0] != p_values[1]:
        return p_values[0] < p_values[1]
    arrived = len(first.reached) * second.n, len(second.reached) * first.n
    return (arrived[0], sum(wins(first, second)[0])) >= (arrived[1], sum(wins(second, first)[0]))


def factor_bounds(better: Setting, worse: Setting, key: str, level: float) -> tuple[float, float] | None:
    """The interval of how many times better a setting is than another, each side at `level`.

    It inverts the test which compares them (`statistics.ratio_bounds`). 0 or infinity where there is no bound. None
    where a side has one run, or a mean is not above 0.
    """
    sides = (better, worse) if better.better(key) == HIGHER else (worse, better)
    top, bottom = (setting.measured(key) for setting in sides)
    latest = max(top.latest, bottom.latest)
    if min(top.n, bottom.n) < 2 or min(fmean(times.at_least(latest)) for times in (top, bottom)) <= 0:
        return None
    return ratio_bounds(top, bottom, 1 - level, top.pairs_with(bottom))


def runs_that_would_tell(pair: Comparison, key: str, level: float) -> Needed | None:
    """How many runs of `better` and of `worse` would tell them apart at a one-sided level.

    As often as POWER says, if they truly differ as much as they seem to. None where a side has one run, where the means
    are equal, where a run did not reach its target, and where it would take more runs than anybody makes.
    """
    sides = [setting.measured(key) for setting in (pair.better, pair.worse)]
    if pair.p is None or any(side.num_short for side in sides):
        return None
    first, second = (pilot(side.reached, side.interval) for side in sides)
    if pair.paired:  # The test is that of the differences, against a side that does not scatter.
        first, second = pilot_of_pairs(sides[0].reached, sides[1].reached, (first.interval, second.interval))
    return runs_to_tell(first, second, abs(first.mean - second.mean), level)


@dataclass(frozen=True)
class Factor:
    """By what factor the better setting of a pair has more of something, and the two-sided p-value of no difference."""

    value: float
    p: float | None
    adjusted: float | None = None  # by Holm, over all pairs of the workload

    @property
    def told_apart(self) -> bool:
        return self.adjusted is not None and self.adjusted < ALPHA


@dataclass(frozen=True)
class Factors:
    """What a pair's times to accuracy are made of: evaluations to the target x the time of an interval between them.

    The first is a small whole number and holds nearly all of the noise. The second repeats closely, so that settings
    whose times cannot be told apart may be told apart by their rate. So: how many times the rate the better setting
    has, and how many times the evaluations it takes.
    """

    pair: Comparison
    rate: Factor
    evaluations: Factor


def factors(pairs: Sequence[Comparison], metric: str) -> list[Factors]:
    """The factors of each pair of settings whose runs say after how many evaluations they reached their target.

    None where settings are compared by another metric than the time to accuracy.
    """
    if metric != TIME:
        return []
    there = [(pair, parts) for pair in pairs if (parts := _of(pair)) is not None]
    rates, numbers = (adjusted([parts[place].p for _, parts in there]) for place in (0, 1))
    return [
        Factors(pair, replace(parts[0], adjusted=of_rate), replace(parts[1], adjusted=of_number))
        for (pair, parts), of_rate, of_number in zip(there, rates, numbers, strict=True)
    ]


def _of(pair: Comparison) -> tuple[Factor, Factor] | None:
    sides = [_parts(setting) for setting in (pair.better, pair.worse)]
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
    """The times of an interval and the numbers of evaluations, of the runs that reached the target; None of no such.

    An interval of a run is its time over the evaluations; of older runs, over the epochs.
    """
    intervals, numbers = [], []
    for run in sorted(setting.trained, key=seed_of):
        number = run.metrics.get(quantities.EVALUATIONS_TO_ACCURACY, run.metrics.get(quantities.EPOCHS_TO_ACCURACY))
        if number and TIME in run.metrics:
            numbers.append(number)
            intervals.append(run.metrics[TIME] / number)
    return (Times(intervals), Times(numbers, interval=1.0)) if numbers else None
