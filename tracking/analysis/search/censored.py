"""The expected time of a run that was stopped or missed, given that it is beyond a known time.

Times are taken as log-normal. A run that was stopped gets the mean of the distribution beyond the time at which it was
stopped, and the distribution is fitted again with them, until it no longer moves (Schmee and Hahn 1979, Technometrics
21, 417-432; as Hutter, Hoos and Leyton-Brown 2011 do for a search, Bayesian Optimization With Censored Response Data).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

USUAL_SPREAD = 0.5  # of the logarithms of settings' times, where too few were reached to say
LEAST_SPREAD = 0.1
ROUNDS = 20


def mean_beyond(bound: float, location: float, spread: float) -> float:
    """E[X | X > bound] of a log-normal X, whose logarithm has this mean and standard deviation."""
    from scipy import special

    score = (math.log(bound) - location) / spread
    shift = special.log_ndtr(spread - score) - special.log_ndtr(-score)
    return max(bound, math.exp(location + spread**2 / 2 + float(shift)))


def expected_beyond(reached: Sequence[float], bounds: Sequence[float]) -> tuple[list[float], float]:
    """The expected value of each run that is beyond a bound, and that of a run of which nothing is known.

    Where no run reached the target, the bounds themselves say where times lie.
    """
    seen = [math.log(value) for value in (reached or bounds)]
    if not seen:
        return [], math.nan
    location, spread = _fit(seen)
    expected = [mean_beyond(bound, location, spread) for bound in bounds]
    for _ in range(ROUNDS if bounds and reached else 0):
        before = location
        location, spread = _fit([*seen, *map(math.log, expected)])
        expected = [mean_beyond(bound, location, spread) for bound in bounds]
        if math.isclose(before, location, abs_tol=1e-6):
            break
    return expected, math.exp(location + spread**2 / 2)


def _fit(logs: Sequence[float]) -> tuple[float, float]:
    spread = statistics.stdev(logs) if len(logs) > 2 else USUAL_SPREAD
    return statistics.fmean(logs), min(max(spread, LEAST_SPREAD), 2 * USUAL_SPREAD)
