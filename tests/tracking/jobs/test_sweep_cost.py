"""What a sweep costs: runs side by side pay for their node once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import studied
from tracking.jobs.node import scheduler_endings, slurm
from tracking.jobs.plan import sweep_cost, sweep_waste
from tracking.jobs.plan.repair import last_sign_ms, repair
from tracking.record import documents, journal, run_folder

HOST_UP_SEC = 2_000_000.0  # 23 days


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
    cost = together if per_gpu_hour is None else 2 * together
    assert sweep_cost.spent_usd(sweep) == pytest.approx(cost)
    assert sweep_waste.by_kind(sweep)["all"].usd == pytest.approx(cost)


def test_runs_one_after_the_other_cost_their_sum_and_of_an_overlap_each_pays_its_part() -> None:
    assert sweep_cost.parts_of_time([(0, 10), (10, 30)]) == [10, 20]
    assert sweep_cost.parts_of_time([(0, 10), (5, 15), (8, 9)]) == pytest.approx(
        [5 + 1.5 + 1 / 3 + 0.5, 5 + 1.5 + 1 / 3 + 0.5, 1 / 3]
    )


def test_a_sweep_without_a_price_has_no_cost(tmp_path: Path) -> None:
    sweep = studied.make_sweep(tmp_path, studied.SWEEP, "sqlite:///none.db", 1)
    studied.make_run(sweep, studied.config(), "sqlite:///none.db")
    assert sweep_cost.spent_usd(sweep) is None


@pytest.mark.parametrize("by_scheduler", [False, True])
def test_a_dead_run_costs_no_more_because_somebody_ends_it_later_elsewhere(tmp_path: Path, by_scheduler: bool) -> None:
    sweep = studied.make_sweep(tmp_path, studied.SWEEP, "sqlite:///none.db", 1)
    made = studied.make_run(sweep, studied.config(price=36.0), "sqlite:///none.db", failure="timeout", recorded=False)
    (made / run_folder.RESULT).unlink()
    cost, last_ms = sweep_cost.spent_usd(sweep), last_sign_ms(made)
    if by_scheduler:
        scheduler_endings.end(made, run_folder.read_config(made), "7", slurm.JobState("TIMEOUT"))
    else:
        repair(made, ended=True)
    result = run_folder.read_result(made)
    assert result is not None
    assert sweep_cost.spent_usd(sweep) == cost
    assert sum(result.goodput["seconds"].values()) < 60
    assert max(record.time_ms for record, _ in journal.read(made / run_folder.JOURNAL)) <= last_ms


def test_a_run_that_went_on_on_another_host_is_timed_by_the_wall_clock(tmp_path: Path) -> None:
    sweep = studied.make_sweep(tmp_path, studied.SWEEP, "sqlite:///none.db", 1)
    made = studied.make_run(sweep, studied.config(price=36.0), "sqlite:///none.db", failure="preempted", recorded=False)
    path = made / run_folder.JOURNAL
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    later = [row | {"clock_sec": row["clock_sec"] + HOST_UP_SEC} for row in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in later))
    before = journal.span_sec(path)
    log = studied.Writer(path, rows[-1]["time_ms"] + 60_000)
    log.event("resume", 0.0, epoch_num=1)
    log.event("init_start", 1.0)
    log.event("run_stop", 100.0)
    documents.write_json(made / run_folder.RESULT, run_folder.Result("finished"))
    assert journal.span_sec(path) == pytest.approx(before + 60 + 100, abs=1)
