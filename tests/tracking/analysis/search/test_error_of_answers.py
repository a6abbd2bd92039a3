"""How often the intervals of an answer miss, in small simulations with fixed seeds."""

from __future__ import annotations

import pytest

from tests.tracking.analysis.search.searches import noisy, searched
from tracking.analysis.search import Axis, Rules, answer

SEEDS = range(1000, 1150)  # 4,000 others miss in 3.7 ± 0.3 %


@pytest.mark.slow
def test_a_ratio_misses_no_more_often_for_deciding_having_looked_three_times() -> None:
    """The answer names the one of two equally quick settings that noise helps, at the look where it helps most."""
    rules = Rules((Axis("gpus", (1, 4)),), explore=False, finalists=({"gpus": 1}, {"gpus": 4}))
    missed = 0
    for seed in SEEDS:
        outcome = answer(rules, searched(rules, noisy(0.02, seed, lambda setting: 10.0)))
        assert outcome.ratios
        [ratio] = outcome.ratios.values()
        missed += not ratio.low <= 1 <= ratio.high
    assert missed <= 0.05 * len(SEEDS)
