"""Tests of settings that ran side by side in blocks of one seed, on the logarithms of their numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy

from tracking.analysis.audit.arithmetic.t_tests import variance

WIDE, POINTS = 9.0, 4001  # of the integral over the lowest mean: standard errors on either side, and points


@dataclass(frozen=True)
class BlockTable:
    """A row of logarithms per setting, with a number for every block.

    `gaps` holds the spacing of each setting's possible numbers, as a share of its mean.
    """

    rows: Mapping[str, numpy.ndarray]
    gaps: Mapping[str, float]

    @property
    def num(self) -> int:
        return len(next(iter(self.rows.values())))

    def residual(self) -> tuple[float, int]:
        """The variance that neither settings nor blocks explain, and its degrees of freedom."""
        if len(self.rows) < 2:
            return 0.0, self.num - 1
        table = numpy.array(list(self.rows.values()))
        rest = table - table.mean(1, keepdims=True) - table.mean(0, keepdims=True) + table.mean()
        freedom = (table.shape[0] - 1) * (table.shape[1] - 1)
        return float((rest**2).sum()) / freedom, freedom

    def _gap(self, first: str, second: str) -> tuple[float, float, int]:
        """The mean difference of two settings, its standard error, and the degrees of freedom."""
        gaps = self.rows[first] - self.rows[second]
        rest, freedom = self.residual()
        spread = max(variance(gaps, math.sqrt(self.gaps[first] ** 2 + self.gaps[second] ** 2)), 2 * rest)
        return float(gaps.mean()), math.sqrt(spread / self.num), freedom

    def p(self, sooner: str, later: str) -> float:
        """The one-sided p-value; small means that `sooner` is sooner."""
        from scipy.special import stdtr

        gap, error, freedom = self._gap(sooner, later)
        return float(gap >= 0) if error == 0 else float(stdtr(freedom, gap / error))

    def at_most(self, first: str, second: str, level: float) -> float:
        """The upper bound of the first setting's mean over the second's."""
        from scipy.special import stdtrit

        gap, error, freedom = self._gap(first, second)
        return math.exp(gap - float(stdtrit(freedom, level)) * error)

    def luck(self) -> float:
        """How far the lowest of the settings' mean logarithms is expected to lie below its own true mean.

        First the means are shrunk towards their mean, by the part of their spread that noise explains. The result is
        the sum over means of the integral of density x P(all others lie above) x distance below the true mean.
        """
        from scipy.special import log_ndtr

        error = math.sqrt(self.residual()[0] / self.num) if len(self.rows) > 1 else 0.0
        if not error:
            return 0.0
        means = numpy.array([row.mean() for row in self.rows.values()])
        whole = max(float(numpy.var(means, ddof=1)), error**2)
        true = means.mean() + math.sqrt(1 - error**2 / whole) * (means - means.mean())
        points = numpy.linspace(true.min() - WIDE * error, true.min() + WIDE * error, POINTS)
        scores = (points[None, :] - true[:, None]) / error
        above = log_ndtr(-scores)
        lowest = numpy.exp(-(scores**2) / 2 + above.sum(0) - above) / math.sqrt(2 * math.pi)
        return float(-(scores * lowest).sum() * (points[1] - points[0]))
