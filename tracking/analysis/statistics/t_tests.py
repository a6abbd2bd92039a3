"""Tests of two means that hold their level for few, unequally many and unequally scattered values.

A value that can only fall on an evaluation tells the time to half an interval. Two seeds that fall on the same
evaluation have no spread, and yet the next one may fall on its neighbour. So no side is taken to scatter less than a
coin between two neighbouring evaluations does: `floored_variance`.

SciPy takes a second to import, which a refusal must not: so inside the functions.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from tracking.analysis.statistics.repeats import finite

ALTERNATIVES = ("two-sided", "less", "greater")
ROUNDING = 1e-12  # relative; a standard error below it is the computer's
SMALLEST = 1e-300  # p-values below it are called 0


def floored_variance(values: Sequence[float], interval: float) -> float:
    """The sample variance (n - 1) of two values or more, and (interval / 2)^2 n / (n - 1) at least.

    The floor is the variance of n values, half of which fall on each of two evaluations that are `interval` apart.
    """
    n = len(values)
    return max(statistics.variance(values), interval**2 / 4 * n / (n - 1))


def separate_variances_p(distance: float, first: tuple[float, int], second: tuple[float, int]) -> float:
    """The two-sided p-value of a difference of two independent means, each with (s^2 / n, n - 1).

    It is the p that solves distance^2 = a t(p; f)^2 + b t(p; g)^2, where (a, f) and (b, g) are the two pairs and
    t(p; f) is the two-sided critical value of Student's t with f degrees of freedom (Banerjee 1961, Sankhya A 23,
    359-378). It holds its level for normal values, whatever the true variances and however unequal f and g are: the
    distribution of chi squared with one degree of freedom is concave. For f = g it is Student's t of
    distance / sqrt(a + b). Welch's degrees of freedom (1947, Biometrika 34, 28-35) reject 12 % of equal means of 2 and
    20 values at 5 %. The smaller side's alone (Hsu 1938; Mickey and Brown 1966, Annals of Mathematical Statistics 37,
    639-642) hold the level, but tell less of 2 and 5 values than of 2 and 2. Needs a + b > 0.
    """
    from scipy import optimize, special

    parts = [(share, freedom) for share, freedom in (first, second) if share > 0]
    total = sum(share for share, _ in parts)
    score = abs(distance) / math.sqrt(total)
    ends = sorted(2 * float(special.stdtr(freedom, -score)) for _, freedom in parts)
    if ends[0] < SMALLEST or ends[0] == ends[-1]:
        return ends[0] if ends[0] == ends[-1] else 0.0

    def excess(log_p: float) -> float:
        tail = math.exp(log_p) / 2
        squares = ((share, special.stdtrit(freedom, tail) / score) for share, freedom in parts)
        return float(sum(share / total * ratio**2 for share, ratio in squares)) - 1

    low, high = math.log(ends[0]), math.log(ends[-1])
    if excess(low) <= 0 or excess(high) >= 0:  # the two ends differ by rounding
        return ends[0] if excess(low) <= 0 else ends[-1]
    return math.exp(optimize.brentq(excess, low, high, xtol=1e-13, rtol=1e-13))


def t_test(
    first: Sequence[float],
    second: Sequence[float],
    alternative: str = "two-sided",
    intervals: tuple[float, float] = (0.0, 0.0),
) -> float | None:
    """The p-value for two equal means: `separate_variances_p` of the two `floored_variance`s.

    `alternative` is SciPy's: two-sided, or whether the mean of `first` is "less" or "greater"; one-sided it is half of
    the two-sided p-value, or 1 minus that half. `intervals` are those of the two sides. None where a side has fewer
    than two finite values. Where neither side scatters at all, the limit: 0 in the direction in which they differ,
    else 1.
    """
    first, second = finite(first), finite(second)
    if min(len(first), len(second)) < 2:
        return None
    means = statistics.fmean(first), statistics.fmean(second)
    variances = floored_variance(first, intervals[0]) / len(first), floored_variance(second, intervals[1]) / len(second)
    distance = means[0] - means[1]
    if math.sqrt(sum(variances)) <= ROUNDING * abs(means[0]):
        if math.isclose(*means, rel_tol=ROUNDING):
            return 1.0
        return one_sided(0.0, distance, alternative)
    p = separate_variances_p(distance, (variances[0], len(first) - 1), (variances[1], len(second) - 1))
    return one_sided(p, distance, alternative)


def one_sided(p: float, distance: float, alternative: str) -> float:
    """The p-value by the alternative, from the two-sided one and the sign of first - second."""
    assert alternative in ALTERNATIVES
    if alternative == "two-sided":
        return p
    return p / 2 if (distance < 0) == (alternative == "less") and distance else 1 - p / 2


def paired_t_test(
    first: Sequence[float],
    second: Sequence[float],
    alternative: str = "two-sided",
    intervals: tuple[float, float] = (0.0, 0.0),
) -> float | None:
    """The p-value of Student's t-test of the differences of pairs, which share what scatters in both (their seed).

    Values of the same place are a pair. The variance of n differences is (v^2 + w^2) / 4 n / (n - 1) at least, for
    intervals v and w of the sides. None for fewer than two pairs; without any spread the limit, as in `t_test`.
    Raises ValueError where the sides are not equally long.
    """
    differences = [value - other for value, other in zip(first, second, strict=True)]
    if len(differences) < 2:
        return None
    n, distance = len(differences), statistics.fmean(differences)
    error = math.sqrt(floored_variance(differences, math.hypot(*intervals)) / n)
    if error <= ROUNDING * abs(statistics.fmean(first)):
        close = abs(distance) <= ROUNDING * abs(statistics.fmean(first))
        return 1.0 if close else one_sided(0.0, distance, alternative)
    from scipy import stats

    return one_sided(float(2 * stats.t.sf(abs(distance) / error, n - 1)), distance, alternative)
