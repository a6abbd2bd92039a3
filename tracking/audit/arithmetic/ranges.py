"""The distribution of the range of several means once more, by quadrature: what choosing best and worst costs."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy

NODES = numpy.polynomial.legendre.leggauss(300)


def range_tail(score: float, freedom: int, num_means: int) -> float:
    """How often the range of so many equal normal means, over their estimated error, is above sqrt(2) x score.

    P = 1 - E over s of  k * integral of phi(z) (Phi(z) - Phi(z - q s))^(k - 1) dz,  s being a chi over its root of
    degrees of freedom.
    """
    from scipy.special import chdtri, gammaln, ndtr

    points, weights = NODES
    ends = [0.5 * math.log(float(chdtri(freedom, tail)) / freedom) for tail in (1 - 1e-14, 1e-14)]
    log_s = 0.5 * (ends[1] - ends[0]) * points + 0.5 * (ends[1] + ends[0])
    s = numpy.exp(log_s)
    log_density = math.log(2) + freedom / 2 * math.log(freedom / 2) - gammaln(freedom / 2)
    density = numpy.exp(log_density + freedom * log_s - freedom * s * s / 2)
    z = 9.0 * points
    normal = 9.0 * weights * numpy.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    between = ndtr(z[:, None]) - ndtr(z[:, None] - math.sqrt(2) * score * s)
    within = num_means * normal @ between ** (num_means - 1)
    return float(0.5 * (ends[1] - ends[0]) * (weights * density) @ (1 - within))


def corrected(p: float, freedom: int, num_means: int) -> float:
    """The p-value of a two-sided t-test between the largest and the smallest of so many means."""
    from scipy.special import stdtrit

    if p == 0 or num_means == 2:
        return p
    return min(1.0, max(p, range_tail(-float(stdtrit(freedom, p / 2)), freedom, num_means)))


@lru_cache(maxsize=1000)
def level(freedom: int, num_means: int) -> float:
    """The one-sided level of a t-test at which 5 % of such choices err."""
    from scipy.special import stdtr

    if num_means == 2:
        return 0.025
    low, high = 1.0, 1000.0
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if range_tail(middle, freedom, num_means) > 0.05 else (low, middle)
    return float(stdtr(freedom, -low))
