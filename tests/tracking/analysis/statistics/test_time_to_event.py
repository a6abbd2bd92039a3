"""Runs that did not get to their target: what they say of their setting, and that a miss never speaks for it."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from tracking.analysis.compare.estimates import Estimate, estimate, ratio
from tracking.analysis.results import Run, newest_attempts
from tracking.analysis.statistics import Times, share

seconds = st.lists(st.integers(1, 1000).map(float), min_size=2, max_size=8)


def test_a_share_has_wilsons_interval() -> None:
    proportion = share(5, 6)
    assert proportion is not None
    assert proportion.text == "5 of 6 (44-97 %)"
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
