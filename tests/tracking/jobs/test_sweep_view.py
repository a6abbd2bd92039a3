"""The view of a sweep on its way into MLflow, and where it does not get there; test_ui.py looks at it in a browser."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from conf.launch_options import TrackingConfig
from conf.schema import RunConfig
from tests.support import studied
from tests.support.mlflow_server import MlflowServer
from tracking.jobs.follow import sync
from tracking.jobs.follow.uploads import Uploads
from tracking.jobs.plan import sweep, sweep_summary, sweep_view
from tracking.jobs.plan.job import Job
from tracking.record import documents, run_folder
from tracking.record.run_folder import Result
from tracking.store.mirror.mirror import Mirror
from tracking.store.mirror.mlflow_run import VIEW_TAG

pytestmark = [
    pytest.mark.usefixtures("mlflow_environment"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def jobs(*configs: RunConfig) -> list[Job]:
    return [Job(config, []) for config in configs]


def with_lr(lr: float, **changes: object) -> RunConfig:
    config = studied.config(**changes)
    config.model.optimizer.lr = lr
    return config


def uploaded(root: Path, uri: str, too_long: bool = False) -> tuple[Path, str]:
    """A sweep of two jobs on a server, and the link that the launcher prints first."""
    configs = [studied.config(seed=seed, runs_dir=str(root)) for seed in (1, 2)]
    for config in configs:
        config.tracking.experiment = "studies"
    with sweep.create(jobs(*configs), ["-m", "seed=1,2"], uri) as owner:
        folder = owner.folder
    runs = [studied.make_run(folder, config, uri) for config in configs]
    run_folder.write_result(folder, Result("finished"))  # sweep.finish would draw the report
    if too_long:
        documents.write_json(folder / run_folder.VIEW, {"searchFilter": 30_000 * "x"})
    assert {outcome.state for outcome in sync.sync([folder, *runs])} == {"complete"}
    printed = io.StringIO()
    Uploads(TrackingConfig(uri=uri), Console(file=printed, width=200)).print_sweep(folder, runs)
    return folder, printed.getvalue()


def test_the_view_is_a_tag_of_the_experiment_and_the_link_names_it(server: MlflowServer, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    folder, printed = uploaded(tmp_path, server.uri)
    client = MlflowClient(server.uri)
    experiment = client.get_experiment(Mirror(folder).experiment_id or "")
    view = json.loads(experiment.tags[VIEW_TAG + folder.name])
    assert view == documents.read_json(folder / run_folder.VIEW)
    assert f"viewStateShareKey={folder.name}" in printed
    runs = client.search_runs([experiment.experiment_id], view["searchFilter"], order_by=[f"{view['orderByKey']} ASC"])
    assert sorted(run.info.run_name for run in runs) == ["vgg-digits-fp32-1gpu-seed1", "vgg-digits-fp32-1gpu-seed2"]
    assert run_folder.VIEW not in {file.path for file in client.list_artifacts(Mirror(folder).run_id or "")}


def test_a_view_that_the_server_refuses_costs_the_columns_alone(server: MlflowServer, tmp_path: Path) -> None:
    folder, printed = uploaded(tmp_path, server.uri, too_long=True)
    assert Mirror(folder).complete
    assert "viewStateShareKey" not in printed
    assert "?searchFilter=tags.sweep" in printed
    assert "orderByKey=metrics.%60time%2Fto_accuracy_sec%60&orderByAsc=true" in printed


def test_columns_are_the_params_in_which_the_jobs_differ() -> None:
    given = [(0.1, 1), (0.2, 2)]
    asked = [Job(with_lr(lr, gpus=gpus), [f"model.optimizer.lr={lr}", f"gpus={gpus}"]) for lr, gpus in given]
    view = sweep_view.state(
        "s", [job.config for job in asked], [job.name for job in asked], list(sweep_summary.grid(asked))
    )
    params = [column for column in view["selectedColumns"] if column.startswith("params.")]
    assert params == ["params.`optimizer/lr`", "params.`gpus`"]
    assert "metrics.`cost/to_accuracy_usd`" not in view["selectedColumns"]
    priced = sweep_view.state("s", [studied.config(price=3.0)], [""], [])
    assert "metrics.`cost/to_accuracy_usd`" in priced["selectedColumns"]


def test_without_a_target_the_highest_rate_is_first() -> None:
    config = studied.config()
    config.model.targets = {}
    view = sweep_view.state("s", [config], [""], [])
    assert (view["orderByKey"], view["orderByAsc"]) == ("metrics.`throughput/samples_per_sec`", False)
    assert [card["type"] for card in view["compareRunCharts"]] == ["BAR", "BAR", "PARALLEL"]


def test_the_view_of_a_wide_sweep_fits_into_a_tag() -> None:
    configs = [studied.config(model="m" * 40)]
    configs[0].model.hparams = {f"an_option_of_the_model_{number}": 1 for number in range(40)}
    axes = [f"model.hparams.{key}" for key in configs[0].model.hparams]
    view = sweep_view.state("20260101-000000-model-abcd", configs, [100 * "n"], axes)
    assert len(json.dumps(view, separators=(",", ":"))) < 5000


@pytest.mark.parametrize(
    ("configs", "study", "title"),
    [
        ([{"gpus": 1}, {"gpus": 2}], "", "vgg sweep gpus=1,2"),
        ([{"model": "vgg"}, {"model": "ssd"}], "", "vgg,ssd sweep"),
        ([{"seed": 1}, {"seed": 2}], "scaling", "scaling study vgg seed=1,2"),
        ([{"seed": seed} for seed in range(100)], "", "vgg sweep seed=0,1,2"),
    ],
)
def test_a_sweeps_name_says_what_it_sweeps(configs: list[dict], study: str, title: str) -> None:
    asked = jobs(*(studied.config(**changes) for changes in configs))
    for job in asked:
        job.config.study.name = study
    shown = sweep.title(asked)
    assert shown.startswith(title)
    assert len(shown) <= sweep.MAX_TITLE
    assert shown == title or shown.endswith("…")
