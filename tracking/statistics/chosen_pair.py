"""What it costs in certainty that the two settings which are compared were chosen for being the best and the worst.

The largest of several means differs from the smallest by more than two means that nobody chose. If all means are equal,
their range in units of its error has the distribution of the studentized range (Tukey 1953; Kramer 1956, Biometrics 12,
307-310). Of settings that scatter unequally each pair has an error of its own (Games and Howell 1976, Journal of
Educational Statistics 1, 113-125), here that of `statistics.t_test` with its degrees of freedom, which are the smaller
side's alone. benchmarks/reports/error_rates.py --best shows how often it errs.

SciPy takes a second to import, so inside the functions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True)
class Choice:
    """Of how many settings the best and the worst were chosen, each of two runs at least, and by how many tests.

    `shared` gives each test its share of the error (Bonferroni; Dunn 1961, Journal of the American Statistical
    Association 56, 52-64): where runs did not get to their target, and of whole numbers, whose range of means has
    another distribution (of coins it errs in 6 %).
    """

    num_settings: int
    num_tests: int
    shared: bool

    def corrected(self, p: float, freedom: int) -> float:
        """The p-value of a two-sided t-test with so many degrees of freedom, corrected for the choice."""
        if self.shared or p == 0:
            return min(1.0, p * self.num_tests)
        return range_p(p, freedom, self.num_settings)

    def level(self, freedom: int, alpha: float) -> float:
        """At which one-sided level a t-test errs in `alpha` of all choices."""
        if self.shared:
            return alpha / (2 * self.num_tests)
        return range_level(alpha, freedom, self.num_settings)


def range_p(p: float, freedom: int, num_means: int) -> float:
    """The p-value of the studentized range that belongs to that of the two-sided t-test."""
    from scipy import stats

    score = math.sqrt(2) * stats.t.isf(p / 2, freedom)
    return min(1.0, max(p, float(stats.studentized_range.sf(score, num_means, freedom))))


@lru_cache(maxsize=1000)  # an inverse takes half a second
def range_level(alpha: float, freedom: int, num_means: int) -> float:
    """The one-sided level of a t-test whose critical value is that of the studentized range."""
    from scipy import stats

    if num_means == 2:
        return alpha / 2
    return float(stats.t.sf(stats.studentized_range.isf(alpha, num_means, freedom) / math.sqrt(2), freedom))
