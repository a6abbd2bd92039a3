"""The simulation of runs that end with whole epochs: its truth is the mean of its runs."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.reports import whole_epochs
from benchmarks.reports.whole_epochs import COST, EQUAL, MANY_MISS, OUTLIER, STOPPED, TIME, Cell, Truth


@pytest.mark.parametrize(("epochs", "spread"), [(1.6, 0.12), (7.3, 0.03), (19.0, 0.12)])
def test_the_true_mean_of_a_setting_is_that_of_its_runs(epochs: float, spread: float) -> None:
    cell, random = Cell(EQUAL, TIME, 2000, 1), np.random.default_rng(4)
    runs = whole_epochs.runs_of(random, "a", Truth(epochs, spread, 10.0), cell, noise=0.01)
    values = [run.metrics[TIME] for run in runs]
    assert abs(np.mean(values) - Truth(epochs, spread, 10.0).sec) < 4 * np.std(values) / len(values) ** 0.5


@pytest.mark.parametrize("what", [EQUAL, "5 %"])
def test_settings_differ_by_what_their_cell_says(what: str) -> None:
    made = whole_epochs.truths(np.random.default_rng(4), Cell(what, TIME, 2, 3), 3)
    ratios = [truth.sec / made[0].sec for truth in made]
    assert ratios == pytest.approx([1, 1, 1] if what == EQUAL else [1, 1.025, 1.05])


def test_runs_miss_are_stopped_and_one_is_an_outlier() -> None:
    random, truth = np.random.default_rng(4), Truth(9.5, 0.12, 10.0)
    ends = {
        what: [TIME in run.metrics for run in whole_epochs.runs_of(random, "a", truth, Cell(what, TIME, 400, 2), 0.01)]
        for what in (MANY_MISS, STOPPED)
    }
    assert 0.25 < 1 - np.mean(ends[MANY_MISS]) < 0.5
    assert 0.05 < 1 - np.mean(ends[STOPPED]) < 0.25
    runs = whole_epochs.runs_of(random, "a", truth, Cell(OUTLIER, TIME, 3, 2), 0.01)
    before = {run.metrics[COST] for run in runs}
    assert len(before - {run.metrics[COST] for run in whole_epochs.with_outlier(random, runs)}) == 1


@pytest.mark.parametrize(
    "cell", [Cell(EQUAL, TIME, 2, 2), Cell(OUTLIER, TIME, 3, 3), Cell(MANY_MISS, COST, 2, 0)], ids=str
)
def test_a_row_has_the_columns_of_the_table(cell: Cell) -> None:
    row = whole_epochs.row(cell, trials=4)
    assert row.keys() <= set(whole_epochs.COLUMNS)
    assert len(row) > 5
