"""Which of two settings is the sooner one where runs of them did not reach the target."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tracking.analysis.statistics import Times, p_sooner, t_test, wins
from tracking.analysis.statistics.sooner import p_of_wins, rank_p

seconds = st.lists(st.integers(1, 1000).map(float), min_size=2, max_size=8)


@given(seconds, seconds)
def test_where_all_get_there_it_is_the_t_test(first: list[float], second: list[float]) -> None:
    assert p_sooner(Times(first), Times(second)) == t_test(first, second, "less")


@given(st.integers(1, 9), st.integers(1, 9), st.data())
def test_the_wins_have_mann_and_whitneys_distribution(n: int, m: int, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(n + m)))
    first, second = order[:n], order[n:]
    count = sum(value < other for value in first for other in second)
    expected = stats.mannwhitneyu(first, second, alternative="less", method="exact").pvalue
    assert p_of_wins(count, n, m) == pytest.approx(expected)


@given(seconds, seconds, st.integers(0, 7), st.floats(0, 1))
def test_a_miss_never_wins(first: list[float], second: list[float], which: int, when: float) -> None:
    """However late a run was given up, its setting wins no more pairs than if it had arrived."""
    lost = first[which % len(first)]
    rest = [value for place, value in enumerate(first) if place != which % len(first)]
    whole = Times(first)
    for cut in (Times(rest, missed=[when * lost]), Times(rest, stopped=[when * lost]), Times(rest, num_diverged=1)):
        assert sum(wins(cut, Times(second))[0]) <= sum(wins(whole, Times(second))[0])
        assert (p_sooner(cut, Times(second)) or 0) >= min(0.5, rank_p(whole, Times(second)))


@given(seconds, seconds, st.integers(0, 7))
def test_of_the_setting_that_is_later_a_run_given_up_sooner_tells_no_more(
    first: list[float], second: list[float], which: int
) -> None:
    rest = [value for place, value in enumerate(second) if place != which % len(second)]
    own = second[which % len(second)]
    bounds = [p_sooner(Times(first), Times(rest, missed=[when])) or 0 for when in (0.5 * own, own)]
    of_means = [np.mean([*rest, when]) for when in (0.5 * own, own)]
    assert of_means[0] < of_means[1]
    assert all(p >= 0.5 ** (len(first) + len(second)) for p in bounds)


def test_two_runs_a_side_that_a_coin_would_part_so_are_not_told_apart() -> None:
    assert p_sooner(Times([10.0, 10.01]), Times([], [30.0, 30.0])) == 0.0625
    assert p_sooner(Times([10.0, 10.01, 9.99]), Times([], [30.0, 30.0, 30.0])) == pytest.approx(1 / 64)


def test_a_setting_that_misses_now_and_then_is_told_to_be_sooner_than_a_slower_one() -> None:
    """The penalised means of these have p = 0.1: nobody knows how late the two would have been."""
    fast = Times([60.0 + place for place in range(18)], [200.0, 200.0])
    slow = Times([100.0 + place for place in range(20)])
    assert (p_sooner(fast, slow) or 1) < 0.001
    assert (p_sooner(slow, fast) or 0) > 0.5


def test_an_early_stop_says_nothing_of_the_setting_that_is_later() -> None:
    """It is left out of the later one, and a loss of the sooner one."""
    fast, slow = [50.0 + place for place in range(5)], [100.0, 101.0, 102.0, 103.0]
    whole = p_sooner(Times(fast), Times([], slow))
    stopped = p_sooner(Times(fast), Times([], slow, stopped=[1.0]))
    assert whole is not None
    assert stopped is not None
    assert stopped == whole < 0.01
    late = p_sooner(Times(fast), Times([], slow, stopped=[104.0]))  # it had not got there when all the others had
    assert late is not None
    assert late < 0.01
    assert p_sooner(Times(fast), Times([90.0], stopped=[1.0, 2.0])) == 1.0  # one known run of three
    assert (p_sooner(Times(fast[:4], stopped=[1.0]), Times(slow)) or 0) > 0.025


@pytest.mark.parametrize(("n", "p"), [(2, 1 / 6), (3, 1 / 16), (5, 1 / 64), (8, 1 / 512)])
def test_against_runs_that_all_diverged_the_spread_of_the_others_does_not_count(n: int, p: float) -> None:
    for spread in (0.0, 0.01, 1.0):
        reached = [10 + spread * place for place in range(n)]
        assert p_sooner(Times(reached), Times([], num_diverged=n)) == pytest.approx(p)
        assert p_sooner(Times([], num_diverged=n), Times(reached)) == 1.0


@pytest.mark.parametrize(("n", "m"), [(2, 20), (3, 3), (5, 5), (8, 8), (20, 3)])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.8, 0.95])
def test_settings_that_diverge_equally_often_are_told_apart_no_more_often_than_promised(
    n: int, m: int, share: float
) -> None:
    random, trials, errors = np.random.default_rng(2), 200, 0
    for _ in range(trials):
        sides = []
        for size in (n, m):
            reached = random.normal(100, 10, size)[random.random(size) > share]
            sides.append(Times(list(reached), num_diverged=size - len(reached)))
        errors += min(p_sooner(*sides) or 0, p_sooner(*sides[::-1]) or 0) < 0.025
    assert errors / trials < 0.05 + 2 * (0.05 * 0.95 / trials) ** 0.5


def test_times_that_were_cut_off_need_three_times_the_evidence() -> None:
    """As the spread is as large on both sides, the t-test of what the times are at least is that of whole times."""
    first, second = [50.0, 60.0, 70.0, 80.0], [90.0, 110.0, 130.0, 150.0]
    whole = p_sooner(Times(first), Times(second))
    assert p_sooner(Times(first), Times(second[:3], missed=second[3:])) == pytest.approx(3 * (whole or 0))


def test_nothing_is_told_of_one_run() -> None:
    assert p_sooner(Times([1.0]), Times([2.0, 3.0])) is None
    assert p_sooner(Times([1.0, 2.0]), Times([], [9.0])) is None


@pytest.mark.parametrize(("n", "m"), [(2, 2), (2, 20), (3, 3), (3, 20), (5, 5), (5, 20), (20, 20)])
@pytest.mark.parametrize("spread", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("cut", [0.2, 0.6])
def test_equal_times_are_told_apart_no_more_often_than_promised(n: int, m: int, spread: float, cut: float) -> None:
    """The first side is cut off at this share of its runs; benchmarks/reports has more of it."""
    random = np.random.default_rng(1)
    trials, errors, end = 200, 0, 100 + 10 * spread * stats.norm.ppf(1 - cut)
    for _ in range(trials):
        first, second = random.normal(100, 10 * spread, n), random.normal(100, 10, m)
        censored, complete = Times(list(first[first <= end]), [end] * int((first > end).sum())), Times(list(second))
        errors += min(p_sooner(censored, complete) or 0, p_sooner(complete, censored) or 0) < 0.025
    assert errors / trials < 0.05 + 2 * (0.05 * 0.95 / trials) ** 0.5
