"""Multiple comparisons with the best."""

from __future__ import annotations

import pytest

from tracking.analysis.statistics import candidates, corrected, one_sided_level


def test_each_of_the_comparisons_with_the_best_has_its_share() -> None:
    assert corrected(0.004, 4) == pytest.approx(0.012)
    assert corrected(0.4, 4) == 1.0
    assert corrected(0.04, 2) == corrected(0.04, 1) == 0.04
    assert one_sided_level(4) == pytest.approx(0.05 / 6)
    assert one_sided_level(2) == 0.025


def test_candidates_are_those_that_no_other_is_told_to_be_better_than() -> None:
    assert candidates(["a", "b", "c"], [("a", "b")]) == ["a", "c"]
    assert candidates(["a", "b"], []) == ["a", "b"]
    assert candidates(["a", "b", "c"], [("c", "a"), ("c", "b")]) == ["c"]
