"""Times to an event that not every run came to, and the share of runs that did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Times:
    """One figure of a setting's runs, in the metric's own unit.

    `reached`: the values of runs that reached the target; of a metric that every run has, all values. `missed`: by when
    a run had spent its own budget without reaching it. `stopped`: by when a run was stopped from outside (a time limit,
    a preemption, a search), beyond which nothing is known of it. `num_diverged` runs never reach the target.
    `interval`: how far apart the evaluations are on which the values can fall; 0 where values are continuous.
    `seeds`: those of `reached`, in its order, where the runs are to be paired by them; else empty.
    """

    reached: Sequence[float]
    missed: Sequence[float] = ()
    stopped: Sequence[float] = ()
    num_diverged: int = 0
    interval: float = 0.0
    seeds: Sequence[str] = ()

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

    def pairs_with(self, other: Times) -> bool:
        """Whether values of the same place are pairs: of two seeds or more, which both sides have."""
        return len(self.seeds) > 1 and self.seeds == other.seeds

    def scaled(self, factor: float) -> Times:
        reached, missed, stopped = (
            [factor * value for value in values] for values in (self.reached, self.missed, self.stopped)
        )
        return Times(reached, missed, stopped, self.num_diverged, factor * self.interval)

    def at_least(self, latest: float) -> list[float]:
        """A value a run, none of which is above the true one."""
        return [*self.reached, *self.censored, *[latest] * self.num_diverged]


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
