"""What more nodes brought, beside the published study."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.studied import config, make_run, make_sweep
from tracking.analysis.published.comparison import add_published
from tracking.analysis.report import report
from tracking.analysis.results import FolderRuns


@pytest.fixture
def store(tmp_path: Path) -> FolderRuns:
    """ResNet-50 on one and two nodes of a GPU, two seeds each: 0.1 and 0.06 s a step."""
    sweep = make_sweep(tmp_path / "runs", "sweep", f"sqlite:///{tmp_path / 'mlflow.db'}", 4)
    for nodes, step_sec in ((1, 0.1), (2, 0.06)):
        for seed in (1, 2):
            make_run(sweep, config(seed=seed, nodes=nodes, model="resnet50"), "", step_sec, eval_sec=0.0)
    return FolderRuns([tmp_path / "runs"])


@pytest.mark.pictures
def test_speed_up_efficiency_and_epochs_stand_beside_the_published_ones(store: FolderRuns) -> None:
    made = report.make(store, ["sweep"], store.find(["sweep"]), ["nodes"])
    before = len(made.plots)
    add_published(made, ["c4140"])
    table = made.tables[-1]
    assert "beside the published study" in table.title
    rows = {row[1]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert set(rows) == {"1", "2"}
    assert rows["2"]["speed-up, published"] == "1.8"
    assert str(rows["2"]["speed-up, yours"]).startswith("1.667")
    assert str(rows["2"]["efficiency (1 is ideal), yours"]).startswith("0.83")
    assert rows["2"]["epochs to the target, published"] == "62"
    assert str(rows["2"]["epochs to the target, yours"]).startswith("3")
    assert made.plots[before:][0].png


def test_runs_of_one_number_of_nodes_have_nothing_beside(store: FolderRuns) -> None:
    runs = [run for run in store.find(["sweep"]) if run.params["nodes"] == "1"]
    made = report.make(store, ["sweep"], runs, ["nodes"])
    add_published(made, ["c4140"])
    assert not any("scaling over nodes" in table.title for table in made.tables)
