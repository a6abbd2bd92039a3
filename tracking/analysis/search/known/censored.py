"""The expected time of a censored run, given that it is beyond a known time.

Times are modelled as log-normal. A censored run gets the mean of the distribution beyond its censored time. Then the
distribution is fitted again with these means, until it converges (Schmee and Hahn 1979, Technometrics 21, 417-432;
Hutter, Hoos and Leyton-Brown 2011 do so for a search, Bayesian Optimization With Censored Response Data).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

USUAL_SPREAD = 0.5  # of the logarithms of settings' times, if too few runs reached the target to measure it
LEAST_SPREAD, MOST_SPREAD = 0.1, 1.0
ROUNDS = 20


def mean_beyond(bounds: Array, location: float, spread: float) -> Array:
    """E[X | X > bound] of a log-normal X, whose logarithm has this mean and standard deviation, for each bound."""
    import numpy as np  # here, since every launcher imports this module, but few search
    from scipy import special

    scores = (np.log(bounds) - location) / spread
    shifts = special.log_ndtr(spread - scores) - special.log_ndtr(-scores)
    means: Array = np.maximum(bounds, np.exp(location + spread**2 / 2 + shifts))
    return means


@lru_cache(maxsize=1024)  # a proposal computes the same runs many times
def expected_beyond(reached: tuple[float, ...], bounds: tuple[float, ...]) -> tuple[tuple[float, ...], float]:
    """The expected value of each run beyond its bound, and the expected value of a run without information.

    If no run reached the target, the bounds are used as times.
    """
    if not (reached or bounds):
        return (), math.nan
    import numpy as np

    logs, beyond = np.log(np.array(reached or bounds)), np.array(bounds)
    location, spread = _fit(logs)
    expected = mean_beyond(beyond, location, spread)
    for _ in range(ROUNDS if bounds and reached else 0):
        before = location
        location, spread = _fit(np.concatenate([logs, np.log(expected)]))
        expected = mean_beyond(beyond, location, spread)
        if math.isclose(before, location, abs_tol=1e-3):
            break
    return tuple(expected.tolist()), math.exp(location + spread**2 / 2)


def _fit(logs: Array) -> tuple[float, float]:
    spread = float(logs.std(ddof=1)) if len(logs) > 2 else USUAL_SPREAD
    return float(logs.mean()), min(max(spread, LEAST_SPREAD), MOST_SPREAD)
