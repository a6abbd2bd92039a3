"""Censored times to an event, and the share of runs that reached it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

FEW = 5  # the fewest runs whose share is shown with its interval


@dataclass(frozen=True)
class Times:
    """A metric's values of a setting's runs, in the metric's own unit.

    - `reached`: the values of runs that reached the target; for a metric that every run has, all values.
    - `missed`: the times at which runs had spent their own budget without the target.
    - `stopped`: the times at which runs were stopped from outside (a time limit, a preemption, a search).
    - `num_diverged`: the number of runs that diverged and so never reach the target, or whose value became NaN.
    - `interval`: the spacing of the evaluations that values fall on; 0 for continuous values.
    - `seeds`: the seeds of `reached`, in its order, if the runs are to be paired by seed; else empty.
    - `higher`: whether higher values are better. A run that diverged is worse than all others: below them, not above.
    """

    reached: Sequence[float]
    missed: Sequence[float] = ()
    stopped: Sequence[float] = ()
    num_diverged: int = 0
    interval: float = 0.0
    seeds: Sequence[str] = ()
    higher: bool = False

    @property
    def censored(self) -> list[float]:
        """The censored times of the runs without the target that did not diverge."""
        return [*self.missed, *self.stopped]

    @property
    def num_short(self) -> int:
        """The number of runs that did not reach the target, for any reason."""
        return len(self.missed) + len(self.stopped) + self.num_diverged

    @property
    def n(self) -> int:
        return len(self.reached) + self.num_short

    @property
    def latest(self) -> float:
        """The latest known time; 0 without any."""
        return max((*self.reached, *self.censored), default=0.0)

    @property
    def sign(self) -> str:
        """Whether the mean of `bounds` is a lower (≥) or an upper bound (≤) of the true one; "" if it is exact."""
        return "" if not self.num_short else "≤" if self.higher else "≥"

    def pairs_with(self, other: Times) -> bool:
        """Whether values with the same index are pairs: both sides have the same seeds, two or more."""
        return len(self.seeds) > 1 and self.seeds == other.seeds

    def scaled(self, factor: float) -> Times:
        reached, missed, stopped = (
            [factor * value for value in values] for values in (self.reached, self.missed, self.stopped)
        )
        return Times(reached, missed, stopped, self.num_diverged, factor * self.interval, higher=self.higher)

    def lower_better(self) -> Times:
        """The same order of runs with lower values as the better ones: negated if higher ones are better."""
        return replace(self, reached=[-value for value in self.reached], higher=False) if self.higher else self

    def bounds(self, *others: Times) -> list[float]:
        """A bound of each run's value: for runs that diverged, the worst one known of these and `others`."""
        known = [value for times in (self, *others) for value in (*times.reached, *times.censored)]
        worst = (min if self.higher else max)(known, default=0.0)
        return [*self.reached, *self.censored, *[worst] * self.num_diverged]


@dataclass(frozen=True)
class Share:
    """The number of n runs that reached the target, with Wilson's 95 % interval of the true share.

    Wilson 1927, Journal of the American Statistical Association 22, 209-212.
    """

    reached: int
    n: int
    low: float
    high: float

    @property
    def text(self) -> str:
        return f"{self.reached} of {self.n}{self.interval}"

    @property
    def interval(self) -> str:
        """` (38-96 %)`; empty for fewer than FEW runs, where it would hold nearly any share."""
        return f" ({100 * self.low:.0f}-{100 * self.high:.0f} %)" if self.n >= FEW else ""


def share(reached: int, n: int) -> Share | None:
    """The share of n runs that reached the target; None for n = 0."""
    if not n:
        return None
    from scipy import stats

    low, high = stats.binomtest(reached, n).proportion_ci(method="wilson")
    return Share(reached, n, float(low), float(high))


def reached_by(times: Times) -> list[tuple[float, float]]:
    """The share of runs that have reached the target over time, as steps (time, share from then on).

    One minus the Kaplan-Meier estimate. Runs that diverged stay at risk until the latest known time.
    """
    from scipy import stats

    curve = stats.ecdf(stats.CensoredData(times.reached, right=times.bounds()[len(times.reached) :])).cdf
    return list(zip(curve.quantiles.tolist(), curve.probabilities.tolist(), strict=True))
