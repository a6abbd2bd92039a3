"""Mean and standard error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tracking.statistics import mean_and_standard_error


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_agrees_with_scipy(values: list[float]) -> None:
    mean, error = mean_and_standard_error(values)
    assert mean == pytest.approx(sum(values) / len(values), abs=1e-6)
    assert error == pytest.approx(stats.sem(values), abs=1e-6)


def test_one_value_has_no_spread_and_none_is_an_error() -> None:
    assert mean_and_standard_error([3.0]) == (3.0, None)
    with pytest.raises(ValueError, match="no values"):
        mean_and_standard_error([])
