"""Which of several settings may be the best one, and by how much it leads the best of the others.

To call the best of k means the best is a choice, which the noise takes part in. Multiple comparisons with the best
(Hsu 1981, Annals of Statistics 9, 1026-1034; Edwards and Hsu 1983, Journal of the American Statistical Association 78,
965-971) allow for it: only comparisons with the true best can go wrong, and there are k - 1 of them. Each is made at
alpha / (k - 1), two-sided (Bonferroni, since spreads are unequal). Then with a probability of 1 - alpha

- the true best is among the candidates: those that no other is told to be better than;
- the ratio of each setting's mean to the true best's lies within its bounds, all at once. So the setting that leads is
  better than the best of the others by a factor between the smallest lower and the smallest upper bound of its factors
  over the others (`lead_bounds`).

Settings that are equal are all the best: a lone candidate among two of them is found in 5 % of cases at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

ALPHA = 0.05


def corrected(p: float, num_settings: int) -> float:
    """The two-sided p-value of a comparison with the best of so many settings of two runs or more, corrected."""
    return min(1.0, p * max(1, num_settings - 1))


def one_sided_level(num_settings: int, alpha: float = ALPHA) -> float:
    """The level of each side of a comparison with the best of so many settings."""
    return alpha / (2 * max(1, num_settings - 1))


def candidates(names: Sequence[str], told: Iterable[tuple[str, str]]) -> list[str]:
    """The names, in order, that may be the best: `told` are pairs (better, worse) that were told apart as above."""
    behind = {worse for _, worse in told}
    return [name for name in names if name not in behind]


def lead_bounds(factors: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The interval of a setting's factor over the best of the others, from the bounds of its factor over each."""
    return min(low for low, _ in factors), min(high for _, high in factors)
