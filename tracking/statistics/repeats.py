"""Statistics of repeated runs. SciPy takes a second to import, which a refusal must not: so inside the functions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

MOST_REPEATS = 10_000  # nobody runs more, and what needs more is as good as not to be told


def mean_and_standard_error(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean, and its standard error s / sqrt(n), s with n - 1; None for a single value, which has no spread.

    Raises ValueError for no values.
    """
    if not values:
        raise ValueError("no values")
    mean = statistics.fmean(values)
    return mean, statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None


def olympic_mean(values: Sequence[float], dropped: int = 1) -> float:
    """The mean without the `dropped` lowest and highest values, as MLPerf scores repeated runs. Raises ValueError where
    none are left.

    MLPerf training rules, section "Benchmark Results": "dropping the fastest and slowest runs, then taking the mean of
    the remaining times". https://github.com/mlcommons/training_policies/blob/master/training_rules.adoc
    """
    if len(values) <= 2 * dropped:
        least = "three" if dropped == 1 else 2 * dropped + 1
        raise ValueError(f"an olympic mean needs {least} values, and there are {len(values)}")
    return statistics.fmean(sorted(values)[dropped : len(values) - dropped])


def t_test(
    first: Sequence[float],
    second: Sequence[float],
    alternative: str = "two-sided",
    resolution: float = 0.0,
) -> float | None:
    """The p-value of a t-test that holds its level for few, unequally many and unequally scattered values.

    The statistic is Welch's (1947, Biometrika 34, 28-35). Its degrees of freedom are those of the smaller side alone,
    which holds the level whatever the true variances are (Hsu 1938, Statistical Research Memoirs 2, 1-24; Mickey and
    Brown 1966, Annals of Mathematical Statistics 37, 639-642): Welch's own reject up to 12 % of equal means of 2 and
    20 values. Of the standard errors with and without the assumption of equal variances the larger one is taken, since
    the few values of a side may by chance hardly scatter. benchmarks/reports/error_rates.py shows how often it errs.

    `alternative` is SciPy's: two-sided, or whether the mean of `first` is "less" or "greater". `resolution` is the step
    in which values are measured, 1 for whole numbers: no side scatters less than rounding does, step / sqrt(12). None
    where a side has fewer than two finite values. Where neither side scatters at all, the limit: 0 in the direction in
    which they differ, else 1.
    """
    assert alternative in ("two-sided", "less", "greater")
    first, second = finite(first), finite(second)
    if min(len(first), len(second)) < 2:
        return None
    distance = statistics.fmean(first) - statistics.fmean(second)
    error = standard_error_of_difference(first, second, resolution)
    if error <= 1e-12 * abs(statistics.fmean(first)):  # nothing but rounding of the computer's
        if math.isclose(statistics.fmean(first), statistics.fmean(second), rel_tol=1e-12):
            return 1.0
        direction = "less" if distance < 0 else "greater"
        return 0.0 if alternative in ("two-sided", direction) else 1.0
    from scipy import stats

    score, freedom = distance / error, min(len(first), len(second)) - 1
    if alternative == "two-sided":
        return float(2 * stats.t.sf(abs(score), freedom))
    return float(stats.t.sf(score, freedom) if alternative == "greater" else stats.t.cdf(score, freedom))


def standard_error_of_difference(first: Sequence[float], second: Sequence[float], resolution: float = 0.0) -> float:
    """Of a difference of means; the larger one of those with and without equal spread. Two values a side at least."""
    n, m = len(first), len(second)
    first_variance, second_variance = (max(statistics.variance(side), resolution**2 / 12) for side in (first, second))
    pooled = ((n - 1) * first_variance + (m - 1) * second_variance) / (n + m - 2)
    return math.sqrt(max(first_variance / n + second_variance / m, pooled * (1 / n + 1 / m)))


def finite(values: Sequence[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def constant(values: Sequence[float]) -> bool:
    """Whether values scatter by no more than rounding, of which a variance would be made of nothing."""
    return all(math.isclose(value, values[0], rel_tol=1e-12) for value in values)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for there being several tests, in the order given: at most 5 % of families of true null
    hypotheses have one below 0.05.

    Holm 1979, Scandinavian Journal of Statistics 6, 65-70; R's p.adjust(method="holm") gives the same. It holds for
    tests that depend on each other, as all pairs of settings do.
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def ratio_between(
    p_above: Callable[[float], float], p_below: Callable[[float], float], numerator: Sequence[float],
    denominator: Sequence[float], confidence: float,
) -> tuple[float, float]:  # fmt: skip
    """The ratios that neither test rejects at `confidence`: p-values for the true ratio being above, below an argument.

    The values tell where to search. 0 or infinity where there is no bound. Raises ValueError for a mean of the values
    that is not positive.
    """
    if min(statistics.fmean(numerator), statistics.fmean(denominator)) <= 0:
        raise ValueError("a ratio of means is taken of positive means only")
    if constant(numerator) and constant(denominator):
        ratio = numerator[0] / denominator[0]
        return (ratio if p_above(0.5 * ratio) < 1 - confidence else 0.0), (
            ratio if p_below(2 * ratio) < 1 - confidence else math.inf
        )
    from scipy.optimize import brentq

    middle = math.log(statistics.fmean(numerator) / statistics.fmean(denominator))
    alpha, far = 1 - confidence, 20.0  # a factor of e^20, beyond which nothing is bounded
    ends = middle - far, middle + far

    def above(log_ratio: float) -> float:
        return p_above(math.exp(log_ratio)) - alpha

    def below(log_ratio: float) -> float:
        return p_below(math.exp(log_ratio)) - alpha

    low = math.exp(brentq(above, *ends)) if above(ends[0]) < 0 < above(ends[1]) else 0.0
    high = math.exp(brentq(below, *ends)) if below(ends[1]) < 0 < below(ends[0]) else math.inf
    return low, high


def repeats_to_tell(
    numerator: Sequence[float],
    denominator: Sequence[float],
    limit: float,
    ratio: float,
    level: Callable[[int], float],
    power: float = 0.8,
    resolution: float = 0.0,
    between: tuple[int, int] = (2, MOST_REPEATS),
) -> int | None:
    """How many runs a side tell `ratio`, if that is the true one, from `limit` with probability `power`.

    By the spread observed on the two sides, each of two values at least, and the noncentral t distribution of the
    statistic of `t_test`, with n - 1 degrees of freedom, at the one-sided `level` that belongs to these. It is known to
    lie `between` two numbers. None where more than the second would be needed.
    """
    from scipy import stats

    mean = statistics.fmean(denominator)
    variances = [max(statistics.variance(side), resolution**2 / 12) for side in (numerator, denominator)]
    total = variances[0] + limit**2 * variances[1]
    distance = abs(ratio - limit) * mean
    if distance == 0:
        return None
    if total == 0:
        return 2

    def enough(n: int) -> bool:
        needed = stats.t.isf(level(n - 1), n - 1)
        return float(stats.nct.sf(needed, n - 1, distance / math.sqrt(total / n))) >= power

    low, high = between[0] - 1, between[1]
    if not enough(high):
        return None
    while high - low > 1:  # power grows with n
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
