"""Whether one of two settings gets to its target more often than the other, where runs of them missed it.

Means say little of a setting that misses: nobody knows how late it would have been. What is known is how many of its
runs had got there when the first run of the other setting was given up, and how many of the other's ever did. A miss
can only count against its setting here, too: no time but the other's matters. These shares are compared by Fisher's
exact test (Fisher 1935, Journal of the Royal Statistical Society 98, 39-82), which holds its level for any number of
runs. Runs that diverged never get there.

The test of means and this one share the error (Bonferroni), unless this one could not reject even if all runs of the
one side had got there before any of the other: such a test takes none of it (Tarone 1990, Biometrics 46, 515-522).
benchmarks/reports/error_rates.py --cut shows how often the two together err, and what they tell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tracking.compare.time_to_event import Times, p_sooner

LEVEL = 0.05  # The test takes half of the error where it is able to reject at this level.


@dataclass(frozen=True)
class Early:
    """How many of n runs of a setting had reached the target when the first of the other's m was given up, and how many
    of these ever did."""

    reached: int
    n: int
    other_reached: int
    m: int

    @property
    def p(self) -> float:
        """The one-sided p-value for the first setting's true share being the larger one."""
        from scipy import stats

        return float(stats.hypergeom.sf(self.reached - 1, self.n + self.m, self.reached + self.other_reached, self.n))

    @property
    def can_tell(self) -> bool:
        """Whether the smallest two-sided p-value that so many runs and successes can have is below half the level."""
        total = self.reached + self.other_reached
        most, others_most = min(total, self.n), min(total, self.m)
        sides = Early(most, self.n, total - most, self.m), Early(others_most, self.m, total - others_most, self.n)
        return 2 * min(side.p for side in sides) < LEVEL / 2


def early(better: Times, worse: Times) -> Early:
    """Of `better` all that got there count, where no run of `worse` was given up: then these diverged or got there."""
    by = min(worse.given_up, default=math.inf)
    return Early(sum(value <= by for value in better.reached), better.n, len(worse.reached), worse.n)


def p_better(better: Times, worse: Times, resolution: float = 0.0) -> tuple[float | None, Early | None]:
    """The two-sided p-value of two settings of which runs missed the target, `better` being the one that looks better;
    and the shares, where these tell more than the means. (None, None) where a side has fewer than two runs."""
    one_sided = p_sooner(better, worse, resolution)
    if one_sided is None:
        return None, None
    of_means, shares = min(1.0, 2 * one_sided), early(better, worse)
    if not shares.can_tell:
        return of_means, None
    of_shares = min(1.0, 2 * shares.p)
    return min(1.0, 2 * min(of_means, of_shares)), shares if of_shares < of_means else None
