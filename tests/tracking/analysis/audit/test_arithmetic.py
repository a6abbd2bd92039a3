"""The arithmetic of the check and that of the report, written apart, come to the same for samples made by chance."""

from __future__ import annotations

import math
import random

import pytest

from conf.metric import HIGHER, LOWER
from tracking.analysis.audit.arithmetic import Observations, factor_bounds, level, pair_of, says, would_tell
from tracking.analysis.audit.arithmetic.censored_means import ratio
from tracking.analysis.audit.arithmetic.pair_tests import sooner_p
from tracking.analysis.audit.arithmetic.rank_test import at_least
from tracking.analysis.statistics import Times, counts, p_sooner, pilot, ratio_bounds, runs_to_tell, t_test
from tracking.analysis.statistics.sooner import p_of_wins


def samples(seed: int) -> list[tuple[Times, Observations]]:
    """Two sides of two to six runs. Some missed their target, were stopped or diverged.

    Of every fifth pair higher values are better, so only runs that became NaN are without one.
    """
    chance = random.Random(seed)
    interval = chance.choice([0.0, 0.0, 2.0])
    sides = []
    for mean in (10.0, chance.choice([10.0, 12.0, 18.0])):
        numbers = [chance.gauss(mean, chance.choice([0.3, 2.0])) for _ in range(chance.randint(2, 6))]
        short = [[chance.uniform(8, 25) for _ in range(chance.choice([0, 0, 0, 1, 2]))] for _ in range(2)]
        never = chance.choice([0, 0, 0, 1])
        if seed % 3 == 0:
            short, never = [[], []], 0
        higher = seed % 5 == 0
        short = [[], []] if higher else short
        sides.append(
            (
                Times(numbers, *short, never, interval, higher=higher),
                Observations(numbers, short[0], short[1], never, interval, higher=higher),
            )
        )
    return sides


@pytest.mark.parametrize("seed", range(60))
def test_p_values_counts_and_bounds_are_the_same(seed: int) -> None:
    (first, own), (second, other) = samples(seed)
    for sides, ours in (((first, second), (own, other)), ((second, first), (other, own))):
        assert sooner_p(*ours) == pytest.approx(p_sooner(*sides), rel=1e-6, abs=1e-12)
    way = HIGHER if first.higher else LOWER
    pair = pair_of(way, "first", own, "second", other)
    if not first.num_short + second.num_short:
        intervals = first.interval, second.interval
        assert pair.p == pytest.approx(t_test(first.reached, second.reached, intervals=intervals), rel=1e-6)
    if pair.counts is not None:
        expected = counts(first, second)
        both = {tuple(vars(expected).values()), tuple(vars(expected.swapped).values())}
        assert pair.counts in both
    bounds = factor_bounds(way, own, other, level(3))
    expected_bounds = ratio_bounds(*((first, second) if first.higher else (second, first)), 1 - level(3))
    assert expected_bounds is not None
    assert bounds == pytest.approx(expected_bounds, rel=1e-6)


@pytest.mark.parametrize("reached", [[10.0] * 5, [10.0, 10.4, 9.7, 10.1, 11.0]])
def test_p_values_and_bounds_beside_a_side_that_diverged_in_all_runs_are_the_same(reached: list[float]) -> None:
    first, second = Times(reached), Times([], num_diverged=5)
    own, other = Observations(reached), Observations([], never=5)
    assert sooner_p(own, other) == pytest.approx(p_sooner(first, second)) == pytest.approx(1 / 64)
    assert sooner_p(other, own) == p_sooner(second, first) == 1.0
    assert factor_bounds(LOWER, own, other, 0.025) == ratio_bounds(second, first, 0.975) == (0.0, math.inf)


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_the_runs_that_would_tell_are_the_same(seed: int) -> None:
    (first, own), (second, other) = samples(seed)
    sides = pilot(first.reached, first.interval), pilot(second.reached, second.interval)
    expected = runs_to_tell(*sides, abs(sides[0].mean - sides[1].mean), 0.025)
    wanted = would_tell(own, other, 0.025)
    assert (wanted is None) == (expected is None)
    if wanted and expected:
        assert (wanted.better, wanted.worse, wanted.most) == (expected.first, expected.second, expected.most)


@pytest.mark.parametrize(("n", "m"), [(2, 3), (5, 4), (7, 7)])
def test_the_distribution_of_wins_is_mann_and_whitneys(n: int, m: int) -> None:
    for wins in range(n * m // 2, n * m + 1):
        assert at_least(wins, n, m) == pytest.approx(p_of_wins(wins, n, m), rel=1e-9)
    assert math.isclose(at_least(0, n, m), 1.0)


def test_a_metric_without_a_direction_has_no_speed_up() -> None:
    own, base = Observations([2.0, 2.2]), Observations([1.0, 1.1])
    assert ratio("eval/fid", own, base, 1.0, same=False) is None
    assert ratio("time/train_sec", own, base, 1.0, same=False) is not None


@pytest.mark.parametrize("same", [True, False])
def test_means_that_are_not_above_0_have_no_speed_up(same: bool) -> None:
    for numbers in ([-2.0, -2.2], [0.0, 0.0]):
        assert ratio("time/train_sec", Observations(numbers), Observations(numbers), 1.0, same) is None


@pytest.mark.parametrize(
    ("text", "agrees"),
    [
        ("510,202,000 ± 3,910,000", True),  # the run's own rates differ from the journal's by 6e-8
        ("510,201,000 ± 3,910,000", True),
        ("510,201,527 ± 3,910,325", False),  # digits that nobody measured
        ("510,302,000 ± 3,910,000", False),
        ("510,202,000 ± 4,010,000", False),
        ("510,202,000", False),
    ],
)
def test_a_rate_of_millions_has_six_digits(text: str, agrees: bool) -> None:
    rates = Observations([502499332.0, 515227069.0, 512878089.0])
    assert says(rates, 1.0, text, 1e-4) is agrees
