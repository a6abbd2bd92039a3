"""Tests of two means that hold their level for few values, unequal numbers and unequal variances.

Evaluations are discrete, so a time to accuracy is known to half an interval between them. Two seeds that reach the
target at the same evaluation show no spread, although the next seed may reach it one evaluation later. So a variance is
at least that of a coin toss between two adjacent evaluations: `floored_variance`.

SciPy takes a second to import and a refused command must be quick, so functions import it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from tracking.analysis.statistics.repeats import finite

ALTERNATIVES = ("two-sided", "less", "greater")
ROUNDING = 1e-12  # a relative standard error below it is rounding
SMALLEST = 1e-300  # p-values below it become 0


def floored_variance(values: Sequence[float], interval: float) -> float:
    """The sample variance (n - 1) of two values or more, at least (interval / 2)^2 n / (n - 1).

    The floor is the variance of n values that fall half on one and half on another evaluation, `interval` apart.
    """
    n = len(values)
    return max(statistics.variance(values), interval**2 / 4 * n / (n - 1))


def separate_variances_p(distance: float, first: tuple[float, int], second: tuple[float, int]) -> float:
    """The two-sided p-value of a difference of two independent means, each with (s^2 / n, n - 1).

    It is the p that solves distance^2 = a t(p; f)^2 + b t(p; g)^2, where (a, f) and (b, g) are the two pairs and
    t(p; f) is the two-sided critical value of Student's t with f degrees of freedom (Banerjee 1961, Sankhya A 23,
    359-378). It holds its level for normal values with any true variances and any f and g, since the distribution of
    chi squared with one degree of freedom is concave. For f = g it is Student's t of distance / sqrt(a + b).

    Two alternatives are worse. Welch's degrees of freedom (1947, Biometrika 34, 28-35) reject 12 % of equal means of 2
    and 20 values at 5 %. The smaller side's degrees of freedom (Hsu 1938; Mickey and Brown 1966, Annals of Mathematical
    Statistics 37, 639-642) hold the level, but have less power with 2 and 5 values than with 2 and 2. Needs a + b > 0.
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

    `alternative` is SciPy's: "two-sided", or whether the mean of `first` is "less" or "greater". A one-sided p-value is
    half of the two-sided one, or 1 minus that half. `intervals` belong to the two sides, as in `floored_variance`. None
    if a side has fewer than two finite values. If both variances are 0, the p-value is the limit: 0 in the direction of
    the difference, else 1.
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
    """The p-value of the alternative, from the two-sided p-value and the sign of first - second."""
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
    """The p-value of Student's t-test of the differences of pairs, such as runs with the same seed.

    Values with the same index are a pair. The variance of n differences is at least (v^2 + w^2) / 4 n / (n - 1), for
    intervals v and w of the sides. None for fewer than two pairs. For a variance of 0, the limit as in `t_test`.
    Raises ValueError if the sides differ in length.
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
