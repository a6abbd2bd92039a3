"""The ratio of two means: tests against a limit, and the interval of ratios that these tests do not reject."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

from tracking.analysis.statistics.repeats import constant
from tracking.analysis.statistics.sooner import p_sooner
from tracking.analysis.statistics.time_to_event import Times

FAR = 20.0  # bounds are sought up to a factor of e^20


def exceeds(numerator: Times, denominator: Times, ratio: float, paired: bool = False) -> float | None:
    """The one-sided p-value; small means that the true ratio of means is above `ratio`.

    Tests mean(a) > ratio x mean(b) as a against ratio x b, where b's interval is scaled too: the test of a ratio for
    unequal variances (Tamhane and Logan 2004, Statistics in Medicine 23, 2655-2668; Fieller 1954).
    """
    return p_sooner(denominator.scaled(ratio), numerator, paired)


def falls_below(numerator: Times, denominator: Times, ratio: float, paired: bool = False) -> float | None:
    """The one-sided p-value; small means that the true ratio of means is below `ratio`. See `exceeds`."""
    return p_sooner(numerator, denominator.scaled(ratio), paired)


def ratio_bounds(
    numerator: Times, denominator: Times, confidence: float = 0.95, paired: bool = False
) -> tuple[float, float] | None:
    """Lower and upper bound of the ratio of two means, each one-sided at `confidence`; for two-sided 95 % give 0.975.

    Between them lie the ratios that `exceeds` and `falls_below` do not reject. A missing bound is 0 or infinity. A run
    that did not reach its target may have taken any time, so a side with such a run bounds its own mean from below
    alone; if higher values are better, from above alone. None if a side has fewer than two runs. Raises ValueError for
    a mean that is not positive.
    """
    if min(numerator.n, denominator.n) < 2:
        return None
    sides = [numerator.bounds(denominator), denominator.bounds(numerator)]
    means = [statistics.fmean(side) for side in sides]
    if min(means) <= 0:
        raise ValueError(f"a ratio of means needs positive means, not {' and '.join(f'{m:g}' for m in means)}")
    middle = means[0] / means[1]

    def above(ratio: float) -> float:
        return exceeds(numerator, denominator, ratio, paired) or 0.0

    def below(ratio: float) -> float:
        return falls_below(numerator, denominator, ratio, paired) or 0.0

    if not (numerator.interval or denominator.interval) and all(map(constant, sides)):  # p-values jump at the middle
        low = middle if above(0.5 * middle) < 1 - confidence < above(2 * middle) else None
        high = middle if below(2 * middle) < 1 - confidence < below(0.5 * middle) else None
    else:
        low, high = (_root(tested, middle, far, 1 - confidence) for tested, far in ((above, -FAR), (below, FAR)))
    no_high, no_low = (side.num_short for side in (numerator, denominator))
    if numerator.higher:
        no_high, no_low = no_low, no_high
    return 0.0 if low is None or no_low else low, math.inf if high is None or no_high else high


def _root(p_value: Callable[[float], float], middle: float, far: float, level: float) -> float | None:
    """The ratio at which the p-value crosses `level`, sought between e^far and e^-far times `middle`.

    None if it does not cross within that range.
    """
    from scipy.optimize import brentq

    def excess(log_ratio: float) -> float:
        return p_value(middle * math.exp(log_ratio)) - level

    if not excess(far) < 0 < excess(-far):
        return None
    return middle * math.exp(brentq(excess, *sorted((far, -far))))
