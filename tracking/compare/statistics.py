"""Statistics of repeated runs. SciPy takes a second to import, which a refusal must not: so inside the functions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

MOST_REPEATS = 10_000  # nobody runs more, and what needs more is as good as not to be told


def mean_and_standard_error(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean, and its standard error s / sqrt(n), s with n - 1; None for a single value, which has no spread.

    Raises ValueError for no values.
    """
    if not values:
        raise ValueError("no values")
    mean = statistics.fmean(values)
    return mean, statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None


def olympic_mean(values: Sequence[float]) -> float:
    """The mean without the lowest and the highest value, as MLPerf scores repeated runs. Raises ValueError for n < 3.

    MLPerf training rules, section "Benchmark Results": "the fastest and slowest times are dropped", of 5 runs in
    vision and 10 elsewhere. https://github.com/mlcommons/training_policies/blob/master/training_rules.adoc
    """
    if len(values) < 3:
        raise ValueError(f"an olympic mean needs three values, and there are {len(values)}")
    return statistics.fmean(sorted(values)[1:-1])


def welch(first: Sequence[float], second: Sequence[float], alternative: str = "two-sided") -> float | None:
    """The p-value of Welch's t-test: how often means would differ as much as these do if the true ones were equal.

    Welch 1947, Biometrika 34, 28-35: unequal variances are allowed for. `alternative` is SciPy's: two-sided, or
    whether the mean of `first` is "less" or "greater". None where a side has fewer than two values, so no spread.
    Where neither side scatters at all, the limit: 0 in the direction in which they differ, else 1.
    """
    assert alternative in ("two-sided", "less", "greater")
    if min(len(first), len(second)) < 2:
        return None
    if constant(first) and constant(second):
        if math.isclose(first[0], second[0], rel_tol=1e-12):
            return 1.0
        direction = "less" if first[0] < second[0] else "greater"
        return 0.0 if alternative in ("two-sided", direction) else 1.0
    from scipy import stats

    sides = [(statistics.fmean(side), statistics.stdev(side), len(side)) for side in (first, second)]
    # Not `ttest_ind`, which warns of lost precision where one side does not scatter.
    test = stats.ttest_ind_from_stats(*sides[0], *sides[1], equal_var=False, alternative=alternative)
    return float(test.pvalue)


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


def exceeds(numerator: Sequence[float], denominator: Sequence[float], ratio: float) -> float | None:
    """The one-sided p-value for the true ratio of means being above `ratio`; small means that it is above.

    mean(a) > ratio x mean(b) is Welch's test of a against ratio x b: the test of a ratio for unequal variances
    (Tamhane and Logan 2004, Statistics in Medicine 23, 2655-2668; Fieller 1954). `falls_below` is its other side.
    """
    return welch(numerator, [ratio * value for value in denominator], "greater")


def falls_below(numerator: Sequence[float], denominator: Sequence[float], ratio: float) -> float | None:
    """The one-sided p-value for the true ratio of means being below `ratio`; small means that it is below."""
    return welch(numerator, [ratio * value for value in denominator], "less")


def ratio_bounds(
    numerator: Sequence[float], denominator: Sequence[float], confidence: float = 0.95
) -> tuple[float, float] | None:
    """Lower and upper bound of the ratio of two means, each one-sided at `confidence`; for two-sided 95 % give 0.975.

    The ratios that `exceeds` and `falls_below` do not reject. 0 or infinity where the spread is so large that there is
    no bound; None where a side has fewer than two values. Raises ValueError for a mean that is not positive.
    """
    if min(statistics.fmean(numerator), statistics.fmean(denominator)) <= 0:
        raise ValueError("a ratio of means is taken of positive means only")
    if min(len(numerator), len(denominator)) < 2:
        return None
    if constant(numerator) and constant(denominator):
        ratio = numerator[0] / denominator[0]
        return ratio, ratio
    from scipy.optimize import brentq

    middle = math.log(statistics.fmean(numerator) / statistics.fmean(denominator))
    alpha, far = 1 - confidence, 20.0  # a factor of e^20, beyond which nothing is bounded

    def above(log_ratio: float) -> float:
        return (exceeds(numerator, denominator, math.exp(log_ratio)) or 0.0) - alpha

    def below(log_ratio: float) -> float:
        return (falls_below(numerator, denominator, math.exp(log_ratio)) or 0.0) - alpha

    low = math.exp(brentq(above, middle - far, middle)) if above(middle - far) < 0 else 0.0
    high = math.exp(brentq(below, middle, middle + far)) if below(middle + far) < 0 else math.inf
    return low, high


def repeats_to_tell(
    numerator: Sequence[float],
    denominator: Sequence[float],
    limit: float,
    ratio: float,
    confidence: float = 0.95,
    power: float = 0.8,
) -> int | None:
    """How many runs a side tell `ratio`, if that is the true one, from `limit` with probability `power`.

    By the spread observed on the two sides, each of two values at least, and the noncentral t distribution of Welch's
    statistic with Satterthwaite's degrees of freedom. None where more than MOST_REPEATS would be needed.
    """
    from scipy import stats

    mean = statistics.fmean(denominator)
    variances = [statistics.variance(numerator), limit**2 * statistics.variance(denominator)]
    total = sum(variances)
    distance = abs(ratio - limit) * mean
    if distance == 0:
        return None
    if total == 0:
        return 2

    def enough(n: int) -> bool:
        freedom = (n - 1) * total**2 / sum(variance**2 for variance in variances)
        needed = stats.t.ppf(confidence, freedom)
        return float(stats.nct.sf(needed, freedom, distance / math.sqrt(total / n))) >= power

    if not enough(MOST_REPEATS):
        return None
    low, high = 1, MOST_REPEATS
    while high - low > 1:  # power grows with n
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
