"""How many runs would tell two means apart: of simulated runs, as often as promised."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tracking.analysis.statistics import Pilot, pilot, runs_to_tell
from tracking.analysis.statistics.power import power

LEVEL = 0.05


def told(n: int, m: int, distance: float, spreads: tuple[float, float]) -> float:
    """How often n and m values tell means that are so far apart at a one-sided LEVEL, of 20,000 trials."""
    random = np.random.default_rng(3)
    first, second = random.normal(0, spreads[0], (20_000, n)), random.normal(distance, spreads[1], (20_000, m))
    parts = first.var(axis=1, ddof=1) / n, second.var(axis=1, ddof=1) / m
    critical = parts[0] * stats.t.isf(LEVEL, n - 1) ** 2 + parts[1] * stats.t.isf(LEVEL, m - 1) ** 2
    return float((second.mean(axis=1) - first.mean(axis=1) > np.sqrt(critical)).mean())


@pytest.mark.parametrize(
    ("distance", "spreads", "sizes"),
    [(3.0, (3.0, 3.0), (2, 2)), (10.0, (5.0, 5.0), (3, 3)), (6.0, (5.0, 1.0), (2, 2)), (2.5, (1.0, 1.0), (2, 20))],
)
def test_as_many_runs_as_advised_tell_with_the_power_promised(
    distance: float, spreads: tuple[float, float], sizes: tuple[int, int]
) -> None:
    sides = [Pilot(n, 100.0, spread**2) for n, spread in zip(sizes, spreads, strict=True)]
    needed = runs_to_tell(sides[0], sides[1], distance, LEVEL)
    assert needed is not None
    assert told(needed.first, needed.second, distance, spreads) > 0.77
    least = min(needed.first, needed.second)
    if least - 1 > min(sizes):  # one fewer is not enough
        fewer = max(least - 1, sizes[0]), max(least - 1, sizes[1])
        assert power(sides[0], sides[1], fewer, distance, LEVEL) < 0.8
    assert needed.most is not None
    assert needed.most[0] >= needed.first


def test_the_side_with_fewer_runs_grows_first() -> None:
    few, many = Pilot(2, 100.0, 1.0), Pilot(20, 102.5, 1.0)
    needed = runs_to_tell(few, many, 2.5, 0.025)
    assert needed is not None
    assert 2 < needed.first < 10
    assert needed.second == 20


def test_a_pilot_of_few_runs_says_a_wide_range_and_one_of_many_a_narrow_one() -> None:
    ranges = []
    for n in (3, 30):
        needed = runs_to_tell(Pilot(n, 100.0, 100.0), Pilot(n, 110.0, 100.0), 4.0, LEVEL)
        assert needed is not None
        assert needed.most is not None
        ranges.append(needed.most[0] / needed.first)
    assert ranges[0] > 6
    assert 1 < ranges[1] < 1.7


def test_no_number_of_runs_tells_what_is_equal() -> None:
    side = pilot([99.0, 101.0])
    assert runs_to_tell(side, side, 0.0, LEVEL) is None
    assert runs_to_tell(side, side, 0.001, LEVEL) is None


def test_of_values_that_fall_on_evaluations_no_fewer_are_advised_than_a_coin_needs() -> None:
    side = pilot([5.0, 5.0, 5.0], interval=1.0)
    needed = runs_to_tell(side, side, 1.0, LEVEL)
    assert needed is not None
    assert needed.first > 3
