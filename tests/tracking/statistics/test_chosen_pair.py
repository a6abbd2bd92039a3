"""What is corrected where the best and the worst of several settings are compared."""

from __future__ import annotations

import pytest
from scipy import stats

from tracking.audit.arithmetic import ranges
from tracking.statistics import Choice

# Upper 5 % points of the studentized range, as tables print them: number of means, degrees of freedom, q.
# Harter 1960, Annals of Mathematical Statistics 31, 1122-1147.
PRINTED = [
    (2, 10, 3.151),
    (3, 2, 8.331),
    (4, 2, 9.798),
    (4, 10, 4.327),
    (5, 20, 4.232),
    (10, 5, 6.995),
    (10, 60, 4.646),
]


@pytest.mark.parametrize(("num_means", "freedom", "q"), PRINTED)
def test_the_level_is_that_of_the_printed_tables(num_means: int, freedom: int, q: float) -> None:
    level = Choice(num_means, 1, shared=False).level(freedom, 0.05)
    assert 2**0.5 * stats.t.isf(level, freedom) == pytest.approx(q, abs=6e-4)
    assert ranges.level(freedom, num_means) == pytest.approx(level, rel=1e-4)


@pytest.mark.parametrize("p", [0.9, 0.2, 0.01, 1e-3, 1e-6])
@pytest.mark.parametrize(("num_means", "freedom"), [(2, 1), (3, 2), (4, 2), (8, 4), (19, 9)])
def test_a_p_value_and_its_level_say_the_same(p: float, num_means: int, freedom: int) -> None:
    choice = Choice(num_means, num_means * (num_means - 1) // 2, shared=False)
    corrected = choice.corrected(p, freedom)
    assert (corrected < 0.05) == (p / 2 < choice.level(freedom, 0.05))
    assert p <= corrected <= min(1.0, choice.num_tests * p) * (1 + 1e-6)  # never stricter than Bonferroni
    assert ranges.corrected(p, freedom, num_means) == pytest.approx(corrected, rel=1e-4, abs=1e-12)


def test_where_no_range_is_known_each_test_has_its_share() -> None:
    choice = Choice(4, 6, shared=True)
    assert choice.corrected(0.004, 2) == pytest.approx(0.024)
    assert choice.level(2, 0.05) == pytest.approx(0.05 / 12)
    assert Choice(4, 6, shared=False).corrected(0.0, 2) == 0
