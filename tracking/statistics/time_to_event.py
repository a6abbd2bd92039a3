"""Times to an event that not every run came to: the share that did, and whether one setting gets there sooner.

A time to accuracy is a time to an event. A run that missed its target or timed out had not got there by a known time (a
censored time; Kaplan and Meier 1958, Journal of the American Statistical Association 53, 457-481). One that diverged
never gets there. To leave such runs out would make a setting better by failing. So, of two settings,

- a miss of the one that would be called better counts as twice the latest time known of the two (a penalised average,
  as PAR2 in the comparison of solvers with time-outs; Hutter et al. 2009, Journal of Artificial Intelligence Research
  36, 267-306);
- a miss of the other one counts as the time by which it was given up, and as the latest time known if it diverged;
- the p-value of the t-test of these is doubled, and never below that of a coin that parts the runs so.

A miss can therefore only count against its setting, whatever ended the run and when. benchmarks/reports/error_rates.py
shows how often it errs, and what a test of means that are cut off at a common time would do.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tracking.statistics.repeats import ratio_between, t_test

PENALTY = 2  # times the latest time known


@dataclass(frozen=True)
class Times:
    """One figure of a setting's runs, in the metric's own unit.

    `reached`: the values of runs that reached the target; of a metric that every run has, all values. `missed`: by when
    a run had spent its own budget without reaching it. `stopped`: by when a run was stopped from outside (a time limit,
    a preemption, a search), beyond which nothing is known of it. `num_diverged` runs never reach the target.
    `interval`: how far apart the evaluations are on which the values can fall; 0 where values are continuous.
    """

    reached: Sequence[float]
    missed: Sequence[float] = ()
    stopped: Sequence[float] = ()
    num_diverged: int = 0
    interval: float = 0.0

    @property
    def censored(self) -> list[float]:
        """By when a run had not reached the target, which did not diverge."""
        return [*self.missed, *self.stopped]

    @property
    def num_short(self) -> int:
        """The runs that did not reach the target, for whatever reason."""
        return len(self.missed) + len(self.stopped) + self.num_diverged

    @property
    def n(self) -> int:
        return len(self.reached) + self.num_short

    @property
    def latest(self) -> float:
        """The latest time that is known; 0 where none is."""
        return max((*self.reached, *self.censored), default=0.0)

    def scaled(self, factor: float) -> Times:
        reached, missed, stopped = (
            [factor * value for value in values] for values in (self.reached, self.missed, self.stopped)
        )
        return Times(reached, missed, stopped, self.num_diverged, factor * self.interval)

    def at_least(self, latest: float) -> list[float]:
        """A value a run, none of which is above the true one."""
        return [*self.reached, *self.censored, *[latest] * self.num_diverged]

    def with_penalty(self, latest: float) -> list[float]:
        """A value a run, with PENALTY times `latest` for each that did not get there."""
        return [*self.reached, *[PENALTY * latest] * self.num_short]


@dataclass(frozen=True)
class Share:
    """How many of n runs reached the target, with Wilson's 95 % interval of the true share (Wilson 1927, Journal of the
    American Statistical Association 22, 209-212)."""

    reached: int
    n: int
    low: float
    high: float

    @property
    def text(self) -> str:
        return f"{self.reached} of {self.n}, {100 * self.low:.0f}-{100 * self.high:.0f} %"


def share(reached: int, n: int) -> Share | None:
    """None of no runs."""
    if not n:
        return None
    from scipy import stats

    low, high = stats.binomtest(reached, n).proportion_ci(method="wilson")
    return Share(reached, n, float(low), float(high))


def reached_by(times: Times) -> list[tuple[float, float]]:
    """The steps of the share that has reached the target over time, as (time, share from then on).

    One minus the Kaplan-Meier estimate; runs that diverged stay among those that could get there to the end.
    """
    from scipy import stats

    curve = stats.ecdf(stats.CensoredData(times.reached, right=times.at_least(times.latest)[len(times.reached) :])).cdf
    return list(zip(curve.quantiles.tolist(), curve.probabilities.tolist(), strict=True))


def means(sooner: Times, later: Times) -> tuple[float, float]:
    """The means of two settings, the misses of `sooner` counted as late as they are here, those of `later` as early."""
    latest = max(sooner.latest, later.latest)
    return statistics.fmean(sooner.with_penalty(latest)), statistics.fmean(later.at_least(latest))


def lead(sooner: Times, later: Times) -> float:
    """By how much a setting's mean is the lower one, if its misses count as late as they do here."""
    low, high = means(sooner, later)
    return high - low


def p_sooner(sooner: Times, later: Times) -> float | None:
    """The one-sided p-value for the true mean of `sooner` being the lower one; None where a side has fewer than two
    runs."""
    latest = max(sooner.latest, later.latest)
    p = t_test(sooner.with_penalty(latest), later.at_least(latest), "less", max(sooner.interval, later.interval))
    if p is None or not sooner.num_short + later.num_short:
        return p
    return min(1.0, max(2 * p, 0.5 ** (sooner.n + later.n)))


def exceeds(numerator: Times, denominator: Times, ratio: float) -> float | None:
    """The one-sided p-value for the true ratio of means being above `ratio`; small means that it is above.

    mean(a) > ratio x mean(b) is the t-test of a against ratio x b: the test of a ratio for unequal variances
    (Tamhane and Logan 2004, Statistics in Medicine 23, 2655-2668; Fieller 1954). `falls_below` is its other side.
    """
    return p_sooner(denominator.scaled(ratio), numerator)


def falls_below(numerator: Times, denominator: Times, ratio: float) -> float | None:
    """The one-sided p-value for the true ratio of means being below `ratio`; small means that it is below."""
    return p_sooner(numerator, denominator.scaled(ratio))


def ratio_bounds(numerator: Times, denominator: Times, confidence: float = 0.95) -> tuple[float, float] | None:
    """Lower and upper bound of the ratio of two means, each one-sided at `confidence`; for two-sided 95 % give 0.975.

    The ratios that `exceeds` and `falls_below` do not reject. 0 or infinity where there is no bound; None where a side
    has fewer than two runs. Raises ValueError for a mean that is not positive.
    """
    if min(numerator.n, denominator.n) < 2:
        return None
    latest = max(numerator.latest, denominator.latest)
    return ratio_between(
        lambda ratio: exceeds(numerator, denominator, ratio) or 0.0,
        lambda ratio: falls_below(numerator, denominator, ratio) or 0.0,
        numerator.at_least(latest),
        denominator.at_least(latest),
        confidence,
    )
