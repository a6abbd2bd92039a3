"""Means of repeated runs and Holm's correction: against SciPy, and published examples."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tracking.analysis.statistics.repeats import holm, mean_and_standard_error, olympic_mean

values = st.floats(-1e6, 1e6)


@given(st.lists(values, min_size=2, max_size=30))
def test_agrees_with_scipy(values: list[float]) -> None:
    mean, error = mean_and_standard_error(values)
    assert mean == pytest.approx(sum(values) / len(values), abs=1e-6)
    assert error == pytest.approx(stats.sem(values), abs=1e-6)


def test_one_value_has_no_spread_and_none_is_an_error() -> None:
    assert mean_and_standard_error([3.0]) == (3.0, None)
    with pytest.raises(ValueError, match="no values"):
        mean_and_standard_error([])


def test_the_olympic_mean_drops_one_at_either_end() -> None:
    assert olympic_mean([100.0, 12.0, 11.0, 13.0, 1.0]) == 12.0
    assert olympic_mean([3.0, 1.0, 1.0]) == 1.0  # one of two equal ones
    with pytest.raises(ValueError, match="three values"):
        olympic_mean([1.0, 2.0])


def test_the_olympic_mean_drops_as_many_as_are_asked_for() -> None:
    assert olympic_mean([math.inf, 1.0, 2.0, 9.0, 3.0, 4.0], dropped=2) == 3.5
    with pytest.raises(ValueError, match="5 values"):
        olympic_mean([1.0, 2.0, 3.0, 4.0], dropped=2)


@given(st.lists(values, min_size=3, max_size=20), values)
def test_an_olympic_mean_does_not_see_how_far_the_extremes_are(some: list[float], far: float) -> None:
    mean = olympic_mean(some)
    assert min(some) <= mean + 1e-6
    assert mean - 1e-6 <= max(some)
    further = sorted(some)
    further[-1] = max(further[-1], abs(far) * 10)
    assert olympic_mean(further) == pytest.approx(mean, abs=1e-6)
    assert mean == pytest.approx(stats.trim_mean(some, 1.000001 / len(some)), abs=1e-6)


def test_holm_gives_what_r_gives() -> None:
    # R: p.adjust(c(0.01, 0.04, 0.03, 0.005), method = "holm")
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.randoms())
def test_holm_lies_between_no_correction_and_bonferroni_and_keeps_the_order(p: list[float], random: object) -> None:
    adjusted = holm(p)
    for before, after in zip(p, adjusted, strict=True):
        assert before <= after <= min(1.0, before * len(p))
    assert adjusted[p.index(min(p))] == min(1.0, min(p) * len(p))
    ordered = [after for _, after in sorted(zip(p, adjusted, strict=True))]
    assert ordered == sorted(ordered)
    order = list(range(len(p)))
    random.shuffle(order)  # type: ignore[attr-defined]
    assert holm([p[place] for place in order]) == pytest.approx([adjusted[place] for place in order])


def test_holm_keeps_the_rate_of_false_findings_over_a_family() -> None:
    """Six pairs of four settings that do not differ: uncorrected, far more than 5 % of reports would rank them."""
    draws = np.random.default_rng(1).normal(100, 5, (1000, 4, 5))
    pairs = [(i, j) for i in range(4) for j in range(i)]
    p = np.stack([stats.ttest_ind(draws[:, i], draws[:, j], axis=1, equal_var=False).pvalue for i, j in pairs], axis=1)
    assert (p.min(axis=1) < 0.05).mean() > 0.12
    assert np.mean([min(holm(list(row))) < 0.05 for row in p]) < 0.06
