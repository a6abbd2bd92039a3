"""Equal ranks that drift are named as seldom as is said, a slow one is found, and the audit tests alike."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from benchmarks.reports.slow_rank_rates import EQUAL, NOMINAL, Case, rates, windows_of
from tracking.analysis.audit.journals import waits
from tracking.measure.bottleneck import rank_noise, slow_rank

RUNS = 400


@pytest.mark.parametrize("case", EQUAL, ids=lambda case: case.words)
@pytest.mark.parametrize("ranks", [2, 4])
def test_equal_ranks_are_named_in_five_of_a_hundred_runs_at_most(case: Case, ranks: int) -> None:
    assert rates(case, ranks, 12, RUNS)[0] <= NOMINAL + 2 * math.sqrt(NOMINAL * (1 - NOMINAL) / RUNS)


def test_the_binomial_test_alone_named_equal_ranks_that_drift_twice_as_often() -> None:
    assert rates(Case("drift", 0.2), 2, 12, RUNS)[1] > 2 * NOMINAL


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize(
    ("kind", "share", "least"), [("scatter", 0.0, 0.99), ("delays", 0.0, 0.7), ("drift", 0.1, 0.7)]
)
def test_a_rank_with_twice_the_work_is_still_found(ranks: int, kind: str, share: float, least: float) -> None:
    assert rates(Case(kind, share, 2.0), ranks, 12, RUNS // 4)[0] >= least


def test_the_audit_names_a_rank_where_the_run_does() -> None:
    random, named = np.random.default_rng(1), 0
    for ranks, windows, work in [(2, 9, 2.0), (3, 40, 1.0), (4, 12, 1.5), (8, 5, 2.0), (2, 3, 2.0)] * 40:
        run = windows_of(random, Case("drift", 0.2, work), ranks, windows)
        least, _ = slow_rank.longest_wait(slow_rank.ranks(run))
        assert waits.is_beyond_noise(run) == least.lead.is_beyond_noise
        named += least.lead.is_beyond_noise
    assert 20 < named < 180  # both answers were compared


def test_the_tail_of_students_t_is_scipys() -> None:
    for freedom in range(1, 12):
        for t in (0.0, 0.7, 3.0, 30.0):
            assert rank_noise.student_tail(t, freedom) == pytest.approx(stats.t.sf(t, freedom), rel=1e-6)
