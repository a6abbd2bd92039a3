"""Model the times of two searches as one surface, to predict settings that only the earlier one has tried.

A Gaussian process of the logarithm of the time (Rasmussen and Williams 2006). This search's surface is the earlier
one's, times a free constant, times a second, smoother surface of its own (as in Kennedy and O'Hagan 2000, Biometrika
87, 1-13). The runs of this search show how large the second surface is. If they do not follow the earlier search, it is
large, and little is known about untried settings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]
    Flags = np.ndarray[Any, np.dtype[np.bool_]]

Place = tuple[float, ...]
HEIGHT, REACH = 0.5, 2.0  # the surface's standard deviation of logarithms, and its length scale in steps
OWN_HEIGHTS, OWN_REACH = (0.1, 0.2, 0.4, 0.8), 3.0  # the same for the second surface
USUAL_HEIGHT, SPREAD = 0.3, 0.7  # prior of the second surface's height: median, and deviation of its logarithm
LARGE = 0.3  # a second surface of this height changes the order of settings
FREE, RATIO = 10.0, 1.0  # variances of the common level, and of the logarithm of the constant
ROUGH = 0.03  # the deviation that no surface follows
UNSEEN = 0.4  # the deviation of a time that is only known to be beyond a bound


class Point(NamedTuple):
    """A setting: its place, the logarithm of its time with its variance, and whether a run reached the target.

    If no run did, `bound` is the logarithm of the latest censored time; -inf if a run failed.
    """

    place: Place
    log_time: float
    variance: float
    seen: bool
    bound: float = -math.inf


@dataclass(frozen=True)
class Fit:
    """The surfaces with one height of the second one. `evidence` is the logarithm of the likelihood and the prior."""

    height: float
    places: Array
    own: Array
    inverse: Array  # of the Cholesky factor
    weights: Array
    middle: float
    evidence: float

    def at(self, places: Sequence[Place]) -> tuple[Array, Array]:
        """The mean of the logarithm of this search's time at each place, and its standard deviation."""
        import numpy as np

        mean, solved = self._solved(places)
        variance = HEIGHT**2 + FREE + self.height**2 + RATIO - (solved**2).sum(0)
        return mean, np.sqrt(np.maximum(variance, 1e-12))

    def beside_best(self, places: Sequence[Place]) -> tuple[Array, Array]:
        """The mean at each place, and the standard deviation of its difference from the place with the lowest one."""
        import numpy as np

        mean, solved = self._solved(places)
        new, ones, best = np.array(places), np.ones(len(places)), int(np.argmin(mean))
        covariance = _covariance(new, ones, new, ones, self.height) - solved.T @ solved
        variance = np.diag(covariance) + covariance[best, best] - 2 * covariance[:, best]
        return mean, np.sqrt(np.maximum(variance, 0.0))

    def _solved(self, places: Sequence[Place]) -> tuple[Array, Array]:
        import numpy as np

        new = np.array(places)
        across = _covariance(new, np.ones(len(places)), self.places, self.own, self.height)
        return self.middle + across @ self.weights, self.inverse @ across.T


@dataclass(frozen=True)
class Shape:
    """The fits for each height, and their probabilities."""

    fits: tuple[Fit, ...]
    shares: tuple[float, ...]

    @property
    def likeliest(self) -> Fit:
        return max(self.fits, key=lambda fit: fit.evidence)

    @property
    def doubt(self) -> float:
        """The probability that this search does not follow the earlier one."""
        return math.fsum(share for fit, share in zip(self.fits, self.shares, strict=True) if fit.height > LARGE)

    def expected_gains(self, places: Sequence[Place], known: Sequence[Place]) -> Array:
        """The expected improvement of each place over the best known one, in logarithms.

        Jones, Schonlau and Welch 1998, Journal of Global Optimization 13, 455-492.
        """
        import numpy as np
        from scipy import special

        gains: Array = np.zeros(len(places))
        for fit, share in zip(self.fits, self.shares, strict=True):
            (mean, spread), best = fit.at(places), float(fit.at(known)[0].min())
            score = (best - mean) / spread
            density = np.exp(-(score**2) / 2) / math.sqrt(2 * math.pi)
            gains += share * spread * (score * special.ndtr(score) + density)
        return gains

    def means(self, places: Sequence[Place]) -> Array:
        import numpy as np

        each = [share * fit.at(places)[0] for fit, share in zip(self.fits, self.shares, strict=True)]
        means: Array = np.sum(each, axis=0)
        return means


@lru_cache(maxsize=4)  # a proposal computes the same points many times
def shape_of(earlier: tuple[Point, ...], own: tuple[Point, ...]) -> Shape:
    """The surfaces through the points of both searches; `earlier` is not empty."""
    import numpy as np

    points = [*earlier, *own]
    is_own = np.array([0.0] * len(earlier) + [1.0] * len(own))
    logs = _completed(points, is_own)
    fits = tuple(_fit(points, is_own, logs, height) for height in OWN_HEIGHTS)
    shares = np.exp([fit.evidence - max(each.evidence for each in fits) for fit in fits])
    return Shape(fits, tuple((shares / shares.sum()).tolist()))


def _completed(points: Sequence[Point], is_own: Array) -> Array:
    """The logarithms of times, with this search's censored times completed.

    A censored time becomes what the earlier search predicts, or its bound if that is later. So a stopped run
    contradicts the earlier search only if its bound is beyond the prediction.
    """
    import numpy as np

    logs = np.array([point.log_time for point in points])
    open_ended = np.array([not point.seen for point in points]) & (is_own == 1)
    if not open_ended.any() or not any(point.seen for point, own in zip(points, is_own, strict=True) if own):
        return logs
    places = [place for place in range(len(points)) if not open_ended[place]]
    fit = _fit([points[place] for place in places], is_own[places], logs[places], OWN_HEIGHTS[0])
    expected, _ = fit.at([point.place for point in points])
    bounds = np.array([point.bound for point in points])
    completed: Array = np.where(open_ended, np.maximum(bounds, expected), logs)
    return completed


def _fit(points: Sequence[Point], is_own: Array, logs: Array, height: float) -> Fit:
    import numpy as np

    places = np.array([point.place for point in points])
    variances = np.array([point.variance for point in points]) + ROUGH**2
    chol = np.linalg.cholesky(_covariance(places, is_own, places, is_own, height) + np.diag(variances))
    inverse, middle = np.linalg.inv(chol), float(logs.mean())
    half = inverse @ (logs - middle)
    prior = -((math.log(height / USUAL_HEIGHT) / SPREAD) ** 2) / 2
    evidence = float(-half @ half / 2 - np.log(np.diag(chol)).sum()) + prior
    return Fit(height, places, is_own, inverse, inverse.T @ half, middle, evidence)


def _covariance(first: Array, first_own: Array, second: Array, second_own: Array, height: float) -> Array:
    import numpy as np

    squares = ((first[:, None, :] - second[None, :, :]) ** 2).sum(-1)
    both_own = first_own[:, None] * second_own[None, :]
    surface = HEIGHT**2 * np.exp(-squares / (2 * REACH**2)) + FREE
    covariance: Array = surface + both_own * (height**2 * np.exp(-squares / (2 * OWN_REACH**2)) + RATIO)
    return covariance
