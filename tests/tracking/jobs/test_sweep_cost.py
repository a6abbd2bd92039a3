"""What a sweep costs: runs side by side pay for their node once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import studied
from tracking.jobs.plan import sweep_cost
from tracking.record import journal, run_folder


@pytest.mark.parametrize("per_gpu_hour", [None, 36.0])
def test_runs_side_by_side_share_the_price_of_their_node_and_none_of_a_gpu(
    tmp_path: Path, per_gpu_hour: float | None
) -> None:
    """All runs of the fixture have the same span, as if each had begun at the same moment."""
    sweep = studied.make_sweep(tmp_path, studied.SWEEP, "sqlite:///none.db", 2)
    for seed in (1, 2):
        config = studied.config(seed=seed, price=36.0)
        config.price_per_gpu_hour = per_gpu_hour
        made = studied.make_run(sweep, config, "sqlite:///none.db")
    seconds = journal.span_sec(made / run_folder.JOURNAL)
    together = seconds * 0.01
    assert sweep_cost.spent_usd(sweep) == pytest.approx(together if per_gpu_hour is None else 2 * together)


def test_runs_one_after_the_other_cost_their_sum_and_of_an_overlap_each_pays_its_part() -> None:
    assert sweep_cost.parts_of_time([(0, 10), (10, 30)]) == [10, 20]
    assert sweep_cost.parts_of_time([(0, 10), (5, 15), (8, 9)]) == pytest.approx(
        [5 + 1.5 + 1 / 3 + 0.5, 5 + 1.5 + 1 / 3 + 0.5, 1 / 3]
    )


def test_a_sweep_without_a_price_has_no_cost(tmp_path: Path) -> None:
    sweep = studied.make_sweep(tmp_path, studied.SWEEP, "sqlite:///none.db", 1)
    studied.make_run(sweep, studied.config(), "sqlite:///none.db")
    assert sweep_cost.spent_usd(sweep) is None
