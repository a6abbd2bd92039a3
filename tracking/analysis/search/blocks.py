"""The deciding runs as a table of settings by blocks, and the test of two settings in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from tracking.analysis.search.trials import Key, SearchTrial
from tracking.analysis.statistics import Times, floored_variance, p_sooner, ratio_bounds

REACH, POINTS = 6.0, 241  # of an integral: standard errors on both sides of the lowest mean, and its points


@dataclass(frozen=True)
class Blocks:
    """The runs of each setting in order of their blocks, for the first `num` blocks."""

    runs: dict[Key, list[SearchTrial]]
    num: int

    def times(self, key: Key) -> Times:
        """A setting's runs as Times. A failed run counts as one that never reaches the target."""
        runs = self.runs[key]
        return Times(
            [run.value for run in runs if run.value is not None],
            [run.censored_at for run in runs if run.value is None and run.censored_at],
            num_diverged=sum(run.value is None and not run.censored_at for run in runs),
            interval=max((run.interval for run in runs), default=0.0),
        )

    def whole(self, key: Key) -> bool:
        """Whether a setting reached the target in every block."""
        runs = self.runs[key]
        return len(runs) == self.num and all(run.value is not None for run in runs)

    def p(self, sooner: Key, later: Key) -> float:
        """The one-sided p-value; small means that `sooner` is sooner.

        If both settings reached the target in every block, it is Student's t of the mean difference of logarithms
        within blocks, whose runs share a seed. The variance is the larger of the pair's and the one pooled over all
        settings (the residual of the two-way table of settings and blocks), and at least what the evaluation intervals
        require. Otherwise it is `p_sooner`, which counts a miss against its setting.
        """
        if self.num < 2:
            return 1.0
        if not (self.whole(sooner) and self.whole(later)):
            p = p_sooner(self.times(sooner), self.times(later))
            return 1.0 if p is None else p
        from scipy import special

        distance, variance, freedom = self._compared(sooner, later)
        if variance == 0:
            return float(distance >= 0)
        return float(special.stdtr(freedom, distance / math.sqrt(variance / self.num)))

    def at_most(self, first: Key, second: Key, level: float) -> float:
        """The upper bound of the ratio of two settings' means, one-sided at this level, by the test of `p`.

        Infinite without a bound.
        """
        if not (self.whole(first) and self.whole(second)):
            bounds = (
                ratio_bounds(self.times(first), self.times(second), 1 - level) if self.times(first).reached else None
            )
            return bounds[1] if bounds else math.inf
        from scipy import special

        distance, variance, freedom = self._compared(first, second)
        return math.exp(distance + float(special.stdtrit(freedom, 1 - level)) * math.sqrt(variance / self.num))

    def _compared(self, first: Key, second: Key) -> tuple[float, float, int]:
        """The mean difference of logarithms within blocks, its variance in one block, and the degrees of freedom."""
        differences = [value - other for value, other in zip(self._logs[first], self._logs[second], strict=True)]
        floor = math.hypot(self._resolution(first), self._resolution(second))
        pooled, freedom = self._pooled
        return fmean(differences), max(floored_variance(differences, floor), 2 * pooled), freedom

    def optimism(self, chosen: Key) -> float:
        """By how much the chosen setting's mean logarithm is expected to be too low, since it is the lowest.

        It is the mean error of the lowest of all means in a parametric bootstrap (Efron and Tibshirani 1993), without
        its draws: s^2 times the integral over x of the sum over pairs i, j of f_i(x) f_j(x) P(all others > x), by
        Stein's lemma. s is the standard error of a mean, and f_i the normal density of mean i. Observed means scatter
        more than true ones, so they are first shrunk towards their mean. 0 if the chosen setting missed the target in a
        block, and without others.
        """
        variance = self._pooled[0] / self.num if len(self._logs) > 1 else 0.0
        if chosen not in self._logs or variance == 0:
            return 0.0
        import numpy as np
        from scipy import special

        means, error = np.array([fmean(logs) for logs in self._logs.values()]), math.sqrt(variance)
        kept = math.sqrt(max(0.0, 1 - variance / max(float(means.var(ddof=1)), variance)))
        drawn = means.mean() + kept * (means - means.mean())
        at = np.linspace(drawn.min() - REACH * error, drawn.min() + REACH * error, POINTS)
        scores = (at[:, None] - drawn) / error
        above = special.ndtr(-scores)
        rates = np.exp(-(scores**2) / 2) / (math.sqrt(2 * math.pi) * error) / np.maximum(above, 1e-300)
        pairs = above.prod(1) * (rates.sum(1) ** 2 - (rates**2).sum(1))
        return variance * float(pairs.sum() * (at[1] - at[0]))

    @cached_property
    def _logs(self) -> dict[Key, list[float]]:
        return {
            key: [math.log(run.value) for run in runs if run.value is not None]
            for key, runs in self.runs.items()
            if self.whole(key)
        }

    @cached_property
    def _pooled(self) -> tuple[float, int]:
        """The residual variance of settings and blocks, and its degrees of freedom."""
        table = list(self._logs.values())
        if len(table) < 2:
            return 0.0, self.num - 1
        block_means = [fmean(column) for column in zip(*table, strict=True)]
        middle = fmean(block_means)
        squares = 0.0
        for row in table:
            mean = fmean(row)
            squares += sum((value - mean - block + middle) ** 2 for value, block in zip(row, block_means, strict=True))
        freedom = (len(table) - 1) * (self.num - 1)
        return squares / freedom, freedom

    def _resolution(self, key: Key) -> float:
        times = self.times(key)
        return times.interval / fmean(times.reached)

    def order(self, key: Key) -> tuple[int, float]:
        """A sort key that ranks settings by misses, then by mean."""
        times = self.times(key)
        return times.num_short, fmean(times.reached) if times.reached else math.inf


def survivors(blocks: Blocks, candidates: Sequence[Key], level: float) -> list[Key]:
    """The candidates that no other one significantly beats, each pair tested at `level` / the number of others.

    The true best can be lost against each of the others once, so it is lost with a probability of at most `level`
    (multiple comparisons with the best, statistics/best_of.py).
    """
    if len(candidates) < 2:
        return list(candidates)
    each, ranks = level / (len(candidates) - 1), {key: blocks.order(key) for key in candidates}
    left = [
        key
        for key in candidates
        if all(ranks[other] >= ranks[key] or blocks.p(other, key) >= each for other in candidates)
    ]
    return left or [min(candidates, key=ranks.__getitem__)]
