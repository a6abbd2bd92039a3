"""log_model=true and register_model=NAME: what MLflow loads afterwards, and that it is there exactly once."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import mlflow
import numpy as np
import pytest
import torch
from mlflow import MlflowClient

from conf.schema import ConfigError, ModelConfig, RunConfig
from tests.support.commands import ROOT, Launched, events, launch
from tests.support.faulty_proxy import FaultyProxy
from tests.support.mlflow_server import MlflowServer
from tracking.jobs.follow.sync import sync
from tracking.record import documents, exported_model, journal, run_folder
from tracking.store.mirror.mirror import Mirror
from tracking.store.server import TrackingRefused, TrackingUnavailable, check_models
from trainers.loop import trained_model
from trainers.loop.load_model import load_model
from trainers.workload import TrialModule

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("mlflow_environment"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
SMALL = (
    "model=vgg", "gpus=0", "max_epochs=1", "limit_train_batches=2", "batch_size=32", "save_model=final",
    "tracking.system_metrics_interval_sec=0",
)  # fmt: skip
DOCS = (ROOT / "docs" / "trained-model.md").read_text(encoding="utf-8")
REGISTERED = "digits_vgg"
# Each makes something, which must not be made twice.
REQUESTS = (
    b"POST /api/2.0/mlflow/logged-models HTTP", b"runs/outputs", b"registered-models/create", b"model-versions/create",
)  # fmt: skip


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    launched = launch(tmp_path_factory.mktemp("logged"), *SMALL, "log_model=true", f"register_model={REGISTERED}")
    assert launched.code == 0, launched.output
    return launched


def uri(launched: Launched) -> str:
    return f"sqlite:///{launched.cwd / 'mlflow.db'}"


def unsent(launched: Launched, tmp_path: Path) -> Path:
    """A copy of the run's folder, to be uploaded whole to another database, `other.db`."""
    folder = tmp_path / "run"
    shutil.copytree(launched.folder, folder)
    (folder / run_folder.MIRROR).unlink()
    info = run_folder.read_info(folder)
    info.tracking_uri = f"sqlite:///{tmp_path / 'other.db'}"
    documents.write_json(folder / run_folder.RUN, info)
    return folder


def test_mlflow_loads_what_was_trained(logged: Launched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(logged.cwd)
    mlflow.set_tracking_uri(uri(logged))
    module = load_model(logged.folder / run_folder.MODEL)
    images = torch.randint(0, 256, (5, 1, 8, 8), dtype=torch.uint8)
    with torch.no_grad():
        wanted = module.net(images.float() / 255)
    network = mlflow.pytorch.load_model(f"models:/{REGISTERED}/1")
    torch.testing.assert_close(network(images).detach(), wanted)
    served = mlflow.pyfunc.load_model(f"runs:/{Mirror(logged.folder).run_id}/vgg-digits")
    np.testing.assert_allclose(served.predict(images.numpy()), wanted.numpy(), rtol=1e-5, atol=1e-6)
    signature = served.metadata.signature
    (inputs,), (outputs,) = signature.inputs.inputs, signature.outputs.inputs
    assert (inputs.type, inputs.shape) == (np.dtype("uint8"), (-1, 1, 8, 8))
    assert (outputs.type, outputs.shape) == (np.dtype("float32"), (-1, 10))
    _, code = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
    exec(code, {})
    example = served.metadata.load_input_example()
    assert served.predict(example).shape == (1, 10)


def test_the_run_shows_the_model_and_both_datasets(logged: Launched) -> None:
    client, mirror = MlflowClient(uri(logged)), Mirror(logged.folder)
    run = client.get_run(str(mirror.run_id))
    [output] = run.outputs.model_outputs
    model = client.get_logged_model(output.model_id)
    assert (model.name, model.status, model.source_run_id) == ("vgg-digits", "READY", mirror.run_id)
    assert output.step == int(model.params["step"]) == 2
    [version] = client.search_model_versions(f"name = '{REGISTERED}'")
    assert (version.run_id, version.model_id or model.model_id) == (mirror.run_id, output.model_id)
    assert f"models:/{REGISTERED}/1" in logged.output
    parts = {tag.value: used.dataset for used in run.inputs.dataset_inputs for tag in used.tags}
    sizes = {context: json.loads(part.profile)["num_rows"] for context, part in parts.items()}
    [train], [evaluation] = events(logged.folder, "train_samples"), events(logged.folder, "eval_samples")
    assert sizes == {"training": int(train.value), "eval": int(evaluation.value)}
    assert not {file.path for file in client.list_artifacts(str(mirror.run_id))} & set(exported_model.FILES)


def test_it_is_written_when_the_clock_has_stopped_and_the_result_is_there(logged: Launched) -> None:
    [stop], [exported] = events(logged.folder, "run_stop"), events(logged.folder, "model_exported")
    assert "error" not in exported.values
    rows = [record for record, _ in journal.read(logged.folder / run_folder.JOURNAL)]
    summary = next(record for record in rows if record.kind == "metrics" and "world_size" in record.values)
    # The summary is journaled right before the result is written, to which the launcher adds when the worker has ended.
    assert stop.clock_sec < summary.clock_sec < exported.clock_sec


def test_a_second_upload_makes_no_second_version(logged: Launched) -> None:
    assert sync([logged.folder], again=True)[0].state == "complete"
    client = MlflowClient(uri(logged))
    assert len(client.search_model_versions(f"name = '{REGISTERED}'")) == 1
    assert len(client.search_logged_models([str(Mirror(logged.folder).experiment_id)])) == 1
    assert len(client.get_run(str(Mirror(logged.folder).run_id)).outputs.model_outputs) == 1


def test_answers_that_are_lost_leave_one_model_and_one_version(
    logged: Launched, server: MlflowServer, proxy: FaultyProxy, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(logged.folder, folder)
    (folder / run_folder.MIRROR).unlink()
    info = run_folder.read_info(folder)
    info.uid, info.experiment, info.tracking_uri = "lost", "lost answers of models", proxy.uri
    documents.write_json(folder / run_folder.RUN, info)
    for number, request in enumerate(REQUESTS, 1):
        proxy.only = request
        with proxy.failing("drop answer"), pytest.raises(TrackingUnavailable):
            Mirror(folder).finish()
        assert proxy.counts["drop answer"] == number, request
        assert not Mirror(folder).complete
    assert sync([folder])[0].state == "complete"
    client = MlflowClient(server.uri)
    run = client.get_run(str(Mirror(folder).run_id))
    [model] = client.search_logged_models([run.info.experiment_id])
    assert [output.model_id for output in run.outputs.model_outputs] == [model.model_id]
    [version] = client.search_model_versions(f"run_id = '{run.info.run_id}'")
    assert version.name == REGISTERED


def test_a_database_that_is_not_the_default_one_has_the_version(logged: Launched, tmp_path: Path) -> None:
    folder, other = unsent(logged, tmp_path), f"sqlite:///{tmp_path / 'other.db'}"
    mlflow.set_tracking_uri(uri(logged))
    assert sync([folder])[0].state == "complete"
    mlflow.set_tracking_uri(other)
    [version] = MlflowClient().search_model_versions(f"name = '{REGISTERED}'")
    assert version.run_id == Mirror(folder).run_id
    assert mlflow.pytorch.load_model(f"models:/{REGISTERED}/{version.version}") is not None


def test_a_prompt_of_that_name_is_not_given_a_model_for_a_version(
    logged: Launched, tmp_path: Path, empty_database: Path
) -> None:
    folder, other = unsent(logged, tmp_path), f"sqlite:///{shutil.copy(empty_database, tmp_path / 'other.db')}"
    mlflow.set_tracking_uri(other)
    mlflow.genai.register_prompt(name=REGISTERED, template="What is {{this}}?")
    outcome = sync([folder])[0]
    assert f"register_model={REGISTERED}: the server has a prompt of that name" in str(outcome)
    assert mlflow.genai.load_prompt(f"prompts:/{REGISTERED}@latest").version == 1


def test_a_server_without_models_is_told_from_one_with(server: MlflowServer, proxy: FaultyProxy) -> None:
    check_models(server.uri, register=True)
    proxy.only = b"registered-models"
    with proxy.failing("status 403"):
        check_models(proxy.uri, register=False)
        with pytest.raises(TrackingRefused, match=r"register_model: http.*takes no models \(HTTP 403"):
            check_models(proxy.uri, register=True)


def test_a_model_that_cannot_be_logged_is_refused_before_it_has_a_folder(tmp_path: Path) -> None:
    launched = launch(tmp_path, "model=transformer", "gpus=0", "log_model=true", "tracking.offline=true")
    assert launched.code == 2, launched.output
    assert "model=transformer cannot be exported" in launched.output
    assert not launched.folders


def test_a_module_that_does_not_say_how_it_predicts_is_refused() -> None:
    class Silent(TrialModule):
        pass

    config = RunConfig(model=ModelConfig(name="ours"))
    trained_model.check_predictor(config, Silent)
    config.log_model = True
    with pytest.raises(ConfigError, match=r"log_model=true: model=ours cannot be exported.*save_model=final"):
        trained_model.check_predictor(config, Silent)
