"""The simulation of searches: its truth is the mean of its runs, and its tables hold a row a cell and a way."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.reports import search_from, search_rates
from benchmarks.reports.landscapes import SETTINGS, landscape
from benchmarks.reports.search_peers import by_grid, by_halving, by_random
from tracking.analysis.search import Rules, SearchTrial


@pytest.mark.parametrize("lumps", [False, True])
@pytest.mark.parametrize("misses", [False, True])
def test_the_true_time_of_a_setting_is_the_mean_of_its_runs_that_reach_the_target(lumps: bool, misses: bool) -> None:
    world = landscape(0.15, lumps, misses, seed=3)
    setting = min(SETTINGS, key=lambda setting: abs(world.epochs(setting) / (world.fewest * 2.2) - 1))
    times = [time for seed in range(4000) if (time := world.time(setting, seed)[0]) is not None]
    assert (len(times) < 4000) == misses
    mean, _ = world._mean_epochs(world.epochs(setting))
    error = float(np.std(times)) / len(times) ** 0.5
    assert abs(np.mean(times) - mean * world.epoch_time(setting)) < 4 * error


def test_a_run_ends_at_its_cap_at_the_target_or_at_its_last_epoch() -> None:
    world = landscape(0.05, lumps=True, misses=True, seed=3)
    ends = {world.ended(SearchTrial(setting, 1, "explore")).state for setting in SETTINGS}
    assert ends == {"reached", "missed"}
    stopped = world.ended(SearchTrial(SETTINGS[0], 1, "explore", cap=1.0))
    assert (stopped.state, stopped.censored_at) == ("stopped", 1.0)


def test_a_grid_without_noise_names_the_best() -> None:
    assert by_grid(landscape(0.0, lumps=False, misses=False, seed=4)).regret == 0


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_tables_have_a_row_for_each_cell_and_way_and_a_search_that_is_stored_is_not_made_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    store, tables = tmp_path / "rates.jsonl", []
    for num in ("1", "2", "2"):
        monkeypatch.setattr(sys, "argv", ["search_rates.py", "--searches", num, "--store", str(store)])
        assert search_rates.main() == 0
        tables.append(capsys.readouterr().out)
        assert len(store.read_text().splitlines()) == int(num) * len(search_rates.CELLS)
    rows = [line for line in tables[1].splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + len(search_rates.CELLS) * (1 + len(search_rates.WAYS))
    assert tables[0] != tables[1] == tables[2]


def test_the_other_ways_decide_without_a_budget() -> None:
    world = landscape(0.15, lumps=True, misses=True, seed=1)
    rich, poor = Rules(world.axes), Rules(world.axes, budget=100.0)
    assert by_halving(world, poor) == by_halving(world, rich)
    assert by_random(world, poor, 500.0) == by_random(world, rich, 500.0)


def test_a_smaller_budget_leaves_finalists_out_and_then_names_none() -> None:
    third, sixth, ninth = (
        [search_rates.judged(seed, search_rates.Cell(0.05, False, share, groups=1)) for seed in range(8)]
        for share in (1 / 3, 1 / 6, 1 / 9)
    )
    assert all(search.answered for search in third)
    assert sum(search.num_finalists for search in sixth) < sum(search.num_finalists for search in third)
    assert not all(search.answered for search in ninth)
    row = search_rates.table({search_rates.Cell(0.05, False, 1 / 9, groups=1): ninth}, search_rates.NOT_SMALL)[-1]
    assert row.startswith("| 5% | no | 1 | 11% |")


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_search_from_an_earlier_one_has_a_row_beside_one_from_nothing_and_is_stored(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    store, tables = tmp_path / "from.jsonl", []
    for _ in range(2):
        monkeypatch.setattr(sys, "argv", ["search_from.py", "--searches", "2", "--store", str(store)])
        assert search_from.main() == 0
        tables.append(capsys.readouterr().out)
        assert len(store.read_text().splitlines()) == 2
    assert tables[0] == tables[1]
    rows = [line.strip("| ").split(" | ")[:2] for line in tables[0].splitlines()[2:]]
    searched = ("on other GPUs", "with its optimum elsewhere", "another model")
    assert rows == [[each, way] for each in searched for way in search_from.WAYS]
