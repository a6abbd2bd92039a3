"""Runs that did not get to their target: what they say of their setting, and that a miss never speaks for it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tracking.compare.estimates import Estimate, estimate, ratio
from tracking.results import Run, newest_attempts
from tracking.statistics import Times, p_sooner, share, t_test

seconds = st.lists(st.integers(1, 1000).map(float), min_size=2, max_size=8)


def test_a_share_has_wilsons_interval() -> None:
    proportion = share(5, 6)
    assert proportion is not None
    assert proportion.text == "5 of 6, 44-97 %"
    assert (proportion.low, proportion.high) == pytest.approx((0.4365, 0.9699), abs=1e-4)
    assert share(0, 0) is None


def test_mlperfs_olympic_mean_drops_a_run_that_does_not_converge_as_the_slowest() -> None:
    reached = [10.0, 11.0, 12.0, 13.0, 14.0]
    mean_time = estimate(Times(reached, [9.0]))
    assert mean_time is not None
    assert mean_time.olympic == 12.5
    assert mean_time.text().startswith("≥ 11.50 ±")
    assert estimate(Times(reached, num_diverged=1)).olympic == 12.5  # type: ignore[union-attr]
    assert estimate(Times(reached)).olympic == 12.0  # type: ignore[union-attr]
    several = estimate(Times(reached, [30.0, 31.0]))
    assert several is not None
    assert several.olympic is None
    assert several.text().endswith("(olympic invalid: several missed)")
    assert several.text(unit=" s").endswith(" s (olympic invalid: several missed)")


def test_a_mean_with_misses_is_a_bound_and_so_is_what_follows_from_it() -> None:
    exact, least = Estimate(10.0, 1.0, 3), estimate(Times([10.0], [30.0]))
    assert least is not None
    assert (least.mean, least.bound) == (20.0, "≥")
    assert ratio(least, exact).bound == "≥"  # type: ignore[union-attr]
    assert ratio(exact, least).bound == "≤"  # type: ignore[union-attr]
    assert ratio(least, least) is None
    assert estimate(Times([], num_diverged=3)) is None  # all diverged: nothing is known of the mean


@given(seconds, seconds)
def test_where_all_get_there_it_is_the_t_test(first: list[float], second: list[float]) -> None:
    assert p_sooner(Times(first), Times(second)) == t_test(first, second, "less")


@given(seconds, seconds, st.integers(0, 7), st.floats(0, 1))
def test_a_miss_never_speaks_for_its_setting(first: list[float], second: list[float], which: int, when: float) -> None:
    """Were a run given up before it got there, its setting is by no smaller a p-value the sooner one."""
    lost = first[which % len(first)]
    rest = [value for place, value in enumerate(first) if place != which % len(first)]
    cut = Times(rest, [when * lost])
    whole, missed = p_sooner(Times(first), Times(second)), p_sooner(cut, Times(second))
    assert whole is not None
    assert missed is not None
    assert missed >= min(whole, 0.5)
    diverged = p_sooner(Times(rest, num_diverged=1), Times(second))
    assert diverged is not None
    assert diverged >= min(whole, 0.5)


def test_two_runs_a_side_that_a_coin_would_part_so_are_not_told_apart() -> None:
    assert p_sooner(Times([10.0, 10.01]), Times([], [30.0, 30.0])) == 0.0625
    assert p_sooner(Times([10.0, 10.01, 9.99]), Times([], [30.0, 30.0, 30.0])) == pytest.approx(1 / 64)


@pytest.mark.parametrize(("n", "m"), [(2, 2), (2, 20), (3, 3), (3, 20), (5, 5), (5, 20), (20, 20)])
@pytest.mark.parametrize("spread", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("cut", [0.2, 0.6])
def test_equal_times_are_told_apart_no_more_often_than_promised(n: int, m: int, spread: float, cut: float) -> None:
    """The first side is cut off at this share of its runs; benchmarks/reports/error_rates.py has more of it."""
    random = np.random.default_rng(1)
    trials, errors, end = 400, 0, 100 + 10 * spread * stats.norm.ppf(1 - cut)
    for _ in range(trials):
        first, second = random.normal(100, 10 * spread, n), random.normal(100, 10, m)
        censored, complete = Times(list(first[first <= end]), [end] * int((first > end).sum())), Times(list(second))
        errors += min(p_sooner(censored, complete) or 0, p_sooner(complete, censored) or 0) < 0.025
    assert errors / trials < 0.05 + 2 * (0.05 * 0.95 / trials) ** 0.5


def test_a_run_that_diverged_is_not_forgotten_for_a_later_attempt_that_did_not() -> None:
    tags = {"sweep": "s", "config_hash": "c"}

    def attempts(*failures: str) -> list[str]:
        runs = [
            Run(str(place), kind, "e", "FAILED" if kind else "FINISHED", place, 1, {}, tags | {"failure": kind})
            for place, kind in enumerate(failures)
        ]
        return [run.name for run in newest_attempts(runs)]

    assert attempts("oom", "nan", "") == ["nan", ""]
    assert attempts("nan", "timeout", "nan") == ["nan"]
    assert attempts("timeout", "") == [""]  # its time is known now
