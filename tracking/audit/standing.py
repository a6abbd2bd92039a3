"""Which setting leads the others, from the pairs of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tracking.audit.samples import PairTest

EQUAL = 1e-12


def stands_first(name: str, names: Iterable[str], pairs: Mapping[frozenset[str], PairTest]) -> bool:
    """Whether no other of these settings is surely the better one in more of the pairs, or in as many and called so in
    more; of equals either may be called so."""

    def sure(of: str) -> int:
        return sum(pair.better == of and pair.factor - 1 > EQUAL for both, pair in pairs.items() if of in both)

    def called(of: str, nearly: float = -1.0) -> int:
        return sum(pair.better == of or pair.factor - 1 <= nearly for both, pair in pairs.items() if of in both)

    own = sure(name), called(name, EQUAL)
    return all((sure(other), called(other)) <= own for other in names if other != name)
