"""Whether one setting reaches its target sooner than another, even if some runs did not reach it.

A run that did not reach the target has a censored time, a time by which it had not reached it (Kaplan and Meier 1958,
Journal of the American Statistical Association 53, 457-481). A run that diverged never reaches it. Leaving such runs
out would make a setting better by failing. Cutting all times off at a common time would make it better by giving up
early. So a run without a time only counts against its setting, whatever ended it and when:

- in the setting that would be called sooner, it loses against every run of the other;
- in the other setting, it counts as its censored time, and as later than all runs if it diverged.

Two usual tests reject far more often than in 5 % of cases for settings with equal means and unequal spread
(benchmarks/reports): the permutation log-rank test (Heinze, Gnant and Schemper 2003, Biometrics 59, 1151-1157), and
means cut off at a common time.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from tracking.analysis.statistics.t_tests import (
    ROUNDING,
    floored_variance,
    one_sided,
    paired_t_test,
    separate_variances_p,
    t_test,
)
from tracking.analysis.statistics.time_to_event import Times

# Times cut off at a budget are skewed: their mean and their spread are both too small. A t-test then rejects equal
# settings too often. This is the smallest whole factor at which 2 to 20 runs hold the level, with spreads of up to
# 5 : 1 (benchmarks/reports/error_rates.py).
CUT_OFF = 3


def p_sooner(sooner: Times, later: Times, paired: bool = False) -> float | None:
    """The one-sided p-value; small means that `sooner` is sooner. None if a side has fewer than two runs.

    - All runs reached the target: the t-test of the means. `paired`: of the pairs, which share an index.
    - Only runs of `later` did not: `CUT_OFF` times the p-value of the t-test against lower bounds of their times
      (`Times.bounds`). The variance of these bounds is at least that of `sooner`, since cutting off shrinks it. The
      p-value is at least 0.5^(n + m), the probability that a coin separates the runs like this.
    - All runs of `later` diverged: the rank test (`rank_p`). Nothing but the last run of `sooner` bounds their times.
    - Runs of `sooner` did not: the rank test.

    Runs of `later` that were stopped before the last run of `sooner` reached the target are left out. These were still
    training, so leaving them out never makes `later` look later. If fewer than two are left, p is 1.
    """
    if min(sooner.n, later.n) < 2:
        return None
    if sooner.higher:  # Then `later` has the better values. Negated, they are the sooner ones.
        return p_sooner(later.lower_better(), sooner.lower_better(), paired)
    intervals = sooner.interval, later.interval
    if not sooner.num_short + later.num_short:
        return (paired_t_test if paired else t_test)(sooner.reached, later.reached, "less", intervals)
    if later.num_diverged == later.n:
        return rank_p(sooner, later)
    later = without_early_stops(later, max(sooner.reached, default=0.0))
    if later.n < 2:
        return 1.0
    if sooner.num_short:
        return rank_p(sooner, later)
    return min(1.0, max(CUT_OFF * _p_below_bounds(sooner, later), 0.5 ** (sooner.n + later.n)))


def _p_below_bounds(sooner: Times, later: Times) -> float:
    """The one-sided p-value; small means that the mean of `sooner` is below the mean lower bound of `later`."""
    bounds = later.bounds(sooner)
    variances = floored_variance(sooner.reached, sooner.interval), floored_variance(bounds, later.interval)
    distance = statistics.fmean(sooner.reached) - statistics.fmean(bounds)
    parts = variances[0] / sooner.n, max(variances) / later.n
    if math.sqrt(sum(parts)) <= ROUNDING * abs(statistics.fmean(sooner.reached)):
        return 0.0 if distance < -ROUNDING * abs(statistics.fmean(bounds)) else 1.0
    p = separate_variances_p(distance, (parts[0], sooner.n - 1), (parts[1], later.n - 1))
    return one_sided(p, distance, "less")


def without_early_stops(times: Times, by: float) -> Times:
    """The times without the runs that were stopped before `by`."""
    stopped = [when for when in times.stopped if when >= by]
    return Times(times.reached, times.missed, stopped, times.num_diverged, times.interval)


def wins(first: Times, second: Times) -> tuple[list[int], list[int]]:
    """For each run of `first`, how many of `second` it is known to beat; for each of `second`, how many beat it.

    A run beats another if its time is below the other's time or censored time, or if the other diverged.
    """
    against = [*second.reached, *second.censored, *[math.inf] * second.num_diverged]
    won = [sum(bool(time < other) for other in against) for time in first.reached]
    lost = [sum(bool(time < other) for time in first.reached) for other in against]
    return [*won, *[0] * first.num_short], lost


def rank_p(sooner: Times, later: Times) -> float:
    """The one-sided p-value; small means that a run of `sooner` is before one of `later` more often than not.

    The statistic is the number of `wins` among all n m pairs. The p-value is 1 if they are at most half. Else it is the
    largest of three:

    - for equal settings, the p-value of the number of wins by the exact distribution of Mann and Whitney's U without
      ties (1947, Annals of Mathematical Statistics 18, 50-60);
    - for settings of unequal spread, half of `separate_variances_p` of the share of wins less one half. Its variances
      are those of the share that each run of a side wins or loses (n - 1), divided by n and m (Brunner and Munzel 2000,
      Biometrical Journal 42, 17-25);
    - 0.5^(k + 1), the probability that all k runs of the smaller side fall on one side of the others by chance.
    """
    won, lost = wins(sooner, later)
    n, m = len(won), len(lost)
    share = sum(won) / (n * m)
    if share <= 0.5:
        return 1.0
    error, lost_error = statistics.variance(won) / m**2 / n, statistics.variance(lost) / n**2 / m
    scattered = error + lost_error > 0
    p_of_share = separate_variances_p(share - 0.5, (error, n - 1), (lost_error, m - 1)) / 2 if scattered else 0.0
    return max(0.5 ** (min(n, m) + 1), p_of_wins(sum(won), n, m), p_of_share)


def p_of_wins(wins: int, n: int, m: int) -> float:
    """The probability of `wins` or more among n m pairs of two samples from one distribution without ties."""
    from scipy import stats

    first, second = ranks_with_wins(wins, n, m)
    return float(stats.mannwhitneyu(first, second, alternative="less", method="exact").pvalue)


def ranks_with_wins(wins: int, n: int, m: int) -> tuple[Sequence[int], Sequence[int]]:
    """Ranks of n and of m values without ties, in which the n values are the lower ones of `wins` pairs."""
    full, rest = divmod(wins, m)
    # `full` values are below all m, one wins `rest` pairs, and the others are above all m.
    places = [0] * full + [m - rest] * (full < n) + [m] * (n - full - 1)
    order = sorted([(place, 0) for place in places] + [(place + 0.5, 1) for place in range(m)])
    ranks = {side: [rank for rank, (_, ranked_side) in enumerate(order) if ranked_side == side] for side in (0, 1)}
    return ranks[0], ranks[1]
