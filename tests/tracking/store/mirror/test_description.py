"""What MLflow's pages say of a run as a whole: description, source, commit, dataset; and where an experiment opens."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from tests.support.folders import make_folder
from tests.support.studied import config, make_run
from tracking.jobs.follow.sync import sync
from tracking.record import Failure, Journal, Result, documents, headline, run_folder
from tracking.store.mirror import description
from tracking.store.mirror.mirror import Mirror

pytestmark = [
    pytest.mark.usefixtures("mlflow_environment"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

NOTE = "mlflow.note.content"
EVALUATIONS = [{"metrics": {"accuracy": value, "loss": 1.0}} for value in (0.5, 0.953, 0.9)]
RATE = {"throughput/samples_per_sec": 6690.4}
REACHED = {"time/to_accuracy_sec": 19.154, "epochs/to_accuracy": 10.0}


@pytest.fixture
def uri(tmp_path: Path, empty_database: Path) -> str:
    return f"sqlite:///{shutil.copy(empty_database, tmp_path / 'mlflow.db')}"


def mlflow_run(uri: str, folder: Path) -> Run:
    [outcome] = sync([folder], again=True)
    assert outcome.state == "complete", outcome.message
    return MlflowClient(uri).get_run(str(Mirror(folder).run_id))


@pytest.mark.parametrize(("fields", "words"), [
    ({"metrics": RATE | REACHED}, "accuracy 0.97 in 19.15 s (10 epochs), 6,690 images/s"),
    ({"metrics": RATE}, "target missed: accuracy 0.953 at best, accuracy 0.97 was the target, 6,690 images/s"),
    ({"metrics": RATE | {"time/resumed_to_accuracy_train_sec": 8.0}},
     "accuracy 0.97 after 8.00 s of training, interrupted, 6,690 images/s"),
    ({"targets": {}, "directions": {"accuracy": "higher"}}, "accuracy 0.953 at best"),
    ({"targets": {}}, "accuracy 0.9 at the end"),  # no direction is declared
    ({"targets": {}, "evaluations": [], "metrics": RATE}, "6,690 images/s"),
    ({"targets": {}, "evaluations": []}, ""),
])  # fmt: skip
def test_the_headline_is_what_was_reached_and_the_rate(fields: dict[str, Any], words: str) -> None:
    facts = {"targets": {"accuracy": 0.97}, "evaluations": EVALUATIONS, "unit": "images", **fields}
    assert headline(Result("finished", **facts)) == words


@pytest.mark.parametrize(("values", "words"), [
    ({"env.gpu": "NVIDIA H200", "env.gpu_count": "2", "precision": "bf16"}, " on 2 x NVIDIA H200, bf16"),
    ({"env.gpu": "none", "env.cpu": "Xeon", "precision": "fp32"}, " on Xeon, fp32"),
    ({"env.cpu": "Xeon", "neighbours": "gpu 0: 1 process"}, " on Xeon\n\nNot alone: gpu 0: 1 process"),
    ({"env.gpu": "none", "env.cpu": "Xeon", "cpu_processes": "2"}, " on 2 processes on Xeon"),
])  # fmt: skip
def test_the_description_names_the_hardware(values: dict[str, str], words: str) -> None:
    assert description.end_tags(Result("finished", metrics=RATE), values) == {NOTE: f"**6,690 samples/s**{words}"}


def test_mlflows_own_columns_are_filled_and_stay_so(uri: str, tmp_path: Path) -> None:
    folder = make_run(tmp_path, config(), uri, tags={"data.version": "c0ffee"})
    log = Journal(folder / run_folder.JOURNAL)
    log.event("train_samples", 1150)
    log.event("eval_samples", 288)
    log.close()
    first, again = mlflow_run(uri, folder), mlflow_run(uri, folder)
    assert first.data.tags == again.data.tags
    tags = first.data.tags
    assert tags["mlflow.source.name"] == "launch.py"
    assert (tags["mlflow.source.type"], tags["mlflow.source.git.commit"]) == ("LOCAL", "c1")
    assert "accuracy 0.9 in " in tags[NOTE]
    assert " on 1 x NVIDIA H200, fp32" in tags[NOTE]
    used = {tag.value: dataset.dataset for dataset in again.inputs.dataset_inputs for tag in dataset.tags}
    assert {context: (part.name, part.digest, json.loads(part.profile)) for context, part in used.items()} == {
        "training": ("digits", "c0ffee", {"num_rows": 1150}),
        "eval": ("digits-eval", "c0ffee", {"num_rows": 288}),
    }


def test_a_run_that_goes_on_after_a_failure_loses_the_failures_words(uri: str, tmp_path: Path) -> None:
    folder = make_folder(tmp_path, uri)
    result = folder / run_folder.RESULT
    documents.write_json(result, Result("failed", failure=Failure("oom", "out of memory", "Traceback")))
    assert "out of memory" in mlflow_run(uri, folder).data.tags[NOTE]
    result.unlink()
    Mirror(folder).step()
    tags = MlflowClient(uri).get_run(str(Mirror(folder).run_id)).data.tags
    assert not {"failure", NOTE} & tags.keys()
    documents.write_json(result, Result("finished"))
    assert not {"failure", NOTE} & mlflow_run(uri, folder).data.tags.keys()


def test_a_resumed_run_says_so_behind_its_headline(uri: str, tmp_path: Path) -> None:
    folder = make_folder(tmp_path, uri)
    log = Journal(folder / run_folder.JOURNAL)
    log.tags({NOTE: "Interrupted (signal:9) and resumed after epoch 2."})
    log.close()
    resumed = Result("finished", metrics=RATE, resumes=[{"epoch_num": 2}])
    documents.write_json(folder / run_folder.RESULT, resumed)
    note = mlflow_run(uri, folder).data.tags[NOTE]
    assert note == "**6,690 samples/s** on the CPU\n\nInterrupted (signal:9) and resumed after epoch 2."


@pytest.mark.parametrize(("kind", "kept"), [
    (None, "custom_model_development"), ("no_inferred_type", "custom_model_development"),
    ("forecasting", "forecasting"),
])  # fmt: skip
def test_an_experiment_that_somebody_made_opens_on_runs(uri: str, tmp_path: Path, kind: str | None, kept: str) -> None:
    client = MlflowClient(uri)
    made = client.create_experiment("tests", tags={"mlflow.experimentKind": kind} if kind else None)
    Mirror(make_folder(tmp_path, uri)).step()
    assert client.get_experiment(made).tags["mlflow.experimentKind"] == kept
