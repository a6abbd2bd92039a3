"""What a sweep spent on runs that no mean counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import quick_launch, studied
from tests.support.commands import HANGS_SEC
from tracking.jobs.plan import sweep_cost, sweep_waste
from tracking.record import attempts, documents, journal, node_records, run_folder


def power(folder: Path, watts: float, node: str = "") -> None:
    file = node_records.file_of(run_folder.JOURNAL, node) if node else run_folder.JOURNAL
    log, place = studied.Writer(folder / file, studied.START_MS), f"{node}/" if node else ""
    for sec in (1.0, 2.0, 4.0):
        log.add("metrics", sec, values={f"system/{place}gpu_0_power_usage_watts": watts,
                                        f"system/{place}gpu_1_power_usage_watts": watts,
                                        f"system/{place}host_joules": 10 * sec})  # fmt: skip


def test_each_kind_has_its_runs_time_energy_and_dollars(tmp_path: Path) -> None:
    sweep = studied.make_sweep(tmp_path, studied.SWEEP, "sqlite:///none.db", 3)
    for failure, seed in ((None, 1), ("oom", 2), ("timeout", 3), (None, 2)):
        made = studied.make_run(sweep, studied.config(seed=seed, price=36.0), "sqlite:///none.db", failure=failure)
        power(made, 500.0)
        power(made, 500.0, "b")
    spent = sweep_waste.write(sweep)
    each = 2 * (1000 * 3 + 30) / 3.6e6  # of two nodes with two GPUs, from the first sample to the last
    assert (spent["repeated"].num_runs, spent["stopped"].num_runs, spent["failed"].num_runs) == (1, 1, 0)
    assert spent["all"].num_runs == 4
    assert spent["stopped"].kwh == pytest.approx(each)
    assert spent["all"].kwh == pytest.approx(4 * each)
    assert spent["all"].sec == pytest.approx(
        sum(journal.span_sec(path / run_folder.JOURNAL) for path in sweep.iterdir() if path.is_dir())
    )
    assert spent["all"].usd == pytest.approx(sweep_cost.spent_usd(sweep))  # All share their node.
    assert documents.read_json(sweep / sweep_waste.NAME)["stopped"]["num_runs"] == 1
    said = sweep_waste.words(spent)
    assert said.startswith("spent in vain: 1 stopped (")
    assert ", 1 repeated (" in said
    assert "; 2 of 4 runs, " in said


def test_the_part_that_a_resumed_run_trained_twice_is_spent_in_vain(tmp_path: Path) -> None:
    sweep = studied.make_sweep(tmp_path, studied.SWEEP, "sqlite:///none.db", 1)
    made = studied.make_run(sweep, studied.config(), "sqlite:///none.db")
    result = documents.read_json(made / run_folder.RESULT)
    result["metrics"]["resume/lost_sec"] = 2.0
    documents.write_json(made / run_folder.RESULT, result)
    spent = sweep_waste.by_kind(sweep)
    assert (spent["repeated"].num_runs, spent["repeated"].sec, spent["repeated"].kwh) == (0, 2.0, None)
    assert sweep_waste.words(spent).startswith("spent in vain: repeated parts (2 s); 0 of 1 run, ")


def test_the_time_between_two_attempts_takes_no_energy(tmp_path: Path) -> None:
    for node in ("", "b"):
        file = node_records.file_of(run_folder.JOURNAL, node) if node else run_folder.JOURNAL
        log, place = studied.Writer(tmp_path / file, studied.START_MS), f"{node}/" if node else ""
        for start in (0.0, 36_000.0):
            if start and not node:
                log.add("event", start, key=attempts.RESUME, values={"epoch_num": 1})
            for sec in range(5):
                log.add("metrics", start + sec, values={f"system/{place}gpu_0_power_usage_watts": 300.0,
                                                        f"system/{place}host_joules": start + 10 * sec})  # fmt: skip
    assert sweep_waste.kwh(tmp_path) == pytest.approx(2 * 8 * 310 / 3.6e6)


def test_runs_side_by_side_do_not_each_have_the_whole_machines_energy(tmp_path: Path) -> None:
    sweep = studied.make_sweep(tmp_path, studied.SWEEP, "sqlite:///none.db", 1)
    config = studied.config()
    config.sweep.jobs_at_once = 4
    power(studied.make_run(sweep, config, "sqlite:///none.db"), 500.0)
    assert sweep_waste.by_kind(sweep)["all"].kwh == pytest.approx(1000 * 3 / 3.6e6)


def test_a_run_whose_energy_is_not_known_is_no_run_without_energy(tmp_path: Path) -> None:
    sweep = studied.make_sweep(tmp_path, studied.SWEEP, "sqlite:///none.db", 3)
    for seed in (1, 2, 3):
        made = studied.make_run(sweep, studied.config(seed=seed), "sqlite:///none.db", failure="oom")
        if seed == 1:
            power(made, 500.0)
    log = studied.Writer(made / run_folder.JOURNAL, studied.START_MS)
    for sec in (1.0, 2.0):  # of the host alone, as on a MIG device
        log.add("metrics", sec, values={"system/host_joules": 10 * sec})
    spent = sweep_waste.by_kind(sweep)["all"]
    assert spent.kwh == pytest.approx((1000 * 3 + 30) / 3.6e6)
    assert spent.num_unmeasured == 2
    assert str(spent).endswith("kWh (not known: 2 runs)")


def test_where_each_run_counts_nothing_is_said(tmp_path: Path) -> None:
    sweep = studied.make_sweep(tmp_path, studied.SWEEP, "sqlite:///none.db", 1)
    studied.make_run(sweep, studied.config(), "sqlite:///none.db")
    assert sweep_waste.words(sweep_waste.by_kind(sweep)) == ""


@pytest.mark.slow
def test_a_sweep_ends_with_what_it_spent_in_vain(tmp_path: Path) -> None:
    jobs = ({"then": "finish"}, {"then": "fail", "sec": 0.1})
    output, _ = quick_launch.begin(tmp_path, "sqlite:///none.db", *jobs).communicate(timeout=HANGS_SEC)
    assert "spent in vain: 1 failed (" in output
    (path,) = (tmp_path / "runs").glob(f"*/{sweep_waste.NAME}")
    assert documents.read_json(path)["failed"]["num_runs"] == 1
