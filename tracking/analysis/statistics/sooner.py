"""Whether one setting reaches its target sooner than another, also where runs of them did not reach it.

A run that did not reach the target had not done so by a known time (a censored time; Kaplan and Meier 1958, Journal of
the American Statistical Association 53, 457-481), and one that diverged never does. To leave such runs out would make a
setting better by failing. To cut all times off at a common one would make it better by giving up early. So a run
without a time only counts against its setting, whatever ended it and when:

- one of the setting that would be called sooner loses against every run of the other;
- one of the other counts as the time by which it had not got there, and as later than all if it diverged.

The log-rank test of permutations (Heinze, Gnant and Schemper 2003, Biometrics 59, 1151-1157) and means that are cut off
at a common time tell settings of equal means and unequal spread apart far more often than in 5 % of cases
(benchmarks/reports).
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

# Times cut off at a budget are skewed, so their mean and their spread are too small together, and a t-test of equal
# settings tells them apart too often. The smallest whole factor by which 2 to 20 runs hold their level, with spreads of
# up to 5 : 1 (benchmarks/reports/error_rates.py).
CUT_OFF = 3


def p_sooner(sooner: Times, later: Times, paired: bool = False) -> float | None:
    """The one-sided p-value for `sooner` being the sooner one; None where a side has fewer than two runs.

    Where all runs reached the target: the t-test of the means (`paired`: of the pairs, runs of the same place being
    one). Where some of `later` alone did not: `CUT_OFF` times the p-value of the t-test against what their times are at
    least (`Times.at_least`), which are not taken to scatter less than those of `sooner`, since they are cut off; and no
    less than 0.5^(n + m), the probability that a coin parts the runs so. Where runs of `sooner` did not: the rank test
    (`rank_p`). Runs of `later` that were stopped before the last run of `sooner` arrived are left out of both: they
    were still on their way, so without them its times are no later. Where fewer than two are left, 1.
    """
    if min(sooner.n, later.n) < 2:
        return None
    intervals = sooner.interval, later.interval
    if not sooner.num_short + later.num_short:
        return (paired_t_test if paired else t_test)(sooner.reached, later.reached, "less", intervals)
    later = without_early_stops(later, max(sooner.reached, default=0.0))
    if later.n < 2:
        return 1.0
    if sooner.num_short:
        return rank_p(sooner, later)
    return min(1.0, max(CUT_OFF * _p_below_bounds(sooner, later), 0.5 ** (sooner.n + later.n)))


def _p_below_bounds(sooner: Times, later: Times) -> float:
    """The one-sided p-value for the mean of `sooner` being below that of what the times of `later` are at least."""
    bounds = later.at_least(max(sooner.latest, later.latest))
    variances = floored_variance(sooner.reached, sooner.interval), floored_variance(bounds, later.interval)
    distance = statistics.fmean(sooner.reached) - statistics.fmean(bounds)
    parts = variances[0] / sooner.n, max(variances) / later.n
    if math.sqrt(sum(parts)) <= ROUNDING * abs(statistics.fmean(sooner.reached)):
        return 0.0 if distance < -ROUNDING * abs(statistics.fmean(bounds)) else 1.0
    p = separate_variances_p(distance, (parts[0], sooner.n - 1), (parts[1], later.n - 1))
    return one_sided(p, distance, "less")


def without_early_stops(times: Times, by: float) -> Times:
    """Without the runs that were stopped before this time."""
    stopped = [when for when in times.stopped if when >= by]
    return Times(times.reached, times.missed, stopped, times.num_diverged, times.interval)


def wins(first: Times, second: Times) -> tuple[list[int], list[int]]:
    """For each run of `first`, against how many of `second` it is known to be sooner; for each of `second`, the same.

    Its time is below the other's time, or below the time by which the other had not arrived; or the other diverged.
    """
    against = [*second.reached, *second.censored, *[math.inf] * second.num_diverged]
    won = [sum(bool(time < other) for other in against) for time in first.reached]
    lost = [sum(bool(time < other) for time in first.reached) for other in against]
    return [*won, *[0] * first.num_short], lost


def rank_p(sooner: Times, later: Times) -> float:
    """The one-sided p-value for a run of `sooner` arriving before one of `later` more often than not.

    What counts is the number of `wins` among all n m pairs; 1 where they are no more than half. Else the p-value is the
    largest of three:

    - of the number of wins by the exact distribution of Mann and Whitney's U without ties (1947, Annals of Mathematical
      Statistics 18, 50-60): it holds for settings that are equal;
    - for settings of unequal spread, half of `separate_variances_p` of the share of wins less one half. Its variances
      are those of the share that each run of a side wins or loses (n - 1), divided by n and m (Brunner and Munzel 2000,
      Biometrical Journal 42, 17-25);
    - 0.5^(k + 1) for the smaller side's k runs, which all fall on one side of the other's by chance.
    """
    won, lost = wins(sooner, later)
    n, m = len(won), len(lost)
    share = sum(won) / (n * m)
    if share <= 0.5:
        return 1.0
    of_won, of_lost = statistics.variance(won) / m**2 / n, statistics.variance(lost) / n**2 / m
    of_shares = separate_variances_p(share - 0.5, (of_won, n - 1), (of_lost, m - 1)) / 2 if of_won + of_lost else 0.0
    return max(0.5 ** (min(n, m) + 1), p_of_wins(sum(won), n, m), of_shares)


def p_of_wins(wins: int, n: int, m: int) -> float:
    """The probability of at least so many wins among n m pairs of two samples from one distribution, without ties."""
    from scipy import stats

    first, second = arranged(wins, n, m)
    return float(stats.mannwhitneyu(first, second, alternative="less", method="exact").pvalue)


def arranged(wins: int, n: int, m: int) -> tuple[Sequence[int], Sequence[int]]:
    """Ranks of n and m values without ties, of which the first win so many pairs by being the lower ones."""
    full, rest = divmod(wins, m)
    # `full` values come before all m, one wins `rest` pairs, the others come behind them.
    places = [0] * full + [m - rest] * (full < n) + [m] * (n - full - 1)
    order = sorted([(place, 0) for place in places] + [(place + 0.5, 1) for place in range(m)])
    ranks = {side: [rank for rank, (_, which) in enumerate(order) if which == side] for side in (0, 1)}
    return ranks[0], ranks[1]
