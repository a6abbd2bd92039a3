"""Which of several settings may be the best, and the level of the bounds of the leader's factors over the others.

Choosing the largest of k means favours the one that noise helped. Multiple comparisons with the best (Hsu 1981, Annals
of Statistics 9, 1026-1034; Edwards and Hsu 1983, Journal of the American Statistical Association 78, 965-971) allow for
this choice. Only the k - 1 comparisons with the true best can go wrong. Each is made at alpha / (k - 1), two-sided
(Bonferroni, since spreads are unequal). Then, with a probability of 1 - alpha:

- the true best is among the candidates, the settings that no other is significantly better than;
- the ratio of every setting's mean to the true best's lies within its bounds. If the leader is the true best, this
  holds for its factors over all others at once. So it holds for the factor over the next one, whichever that is.

Equal settings are all the best: of two, only one remains a candidate in at most 5 % of cases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

ALPHA = 0.05


def corrected(p: float, num_settings: int) -> float:
    """The corrected two-sided p-value of a comparison with the best of `num_settings`, each with two runs or more."""
    return min(1.0, p * max(1, num_settings - 1))


def one_sided_level(num_settings: int) -> float:
    """The level of each side of a comparison with the best of `num_settings`."""
    return ALPHA / (2 * max(1, num_settings - 1))


def candidates(names: Sequence[str], significant: Iterable[tuple[str, str]]) -> list[str]:
    """The names that may be the best, in order. `significant`: the pairs (better, worse) with a corrected p < ALPHA."""
    behind = {worse for _, worse in significant}
    return [name for name in names if name not in behind]
