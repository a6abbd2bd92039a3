"""The trained model of a run as a logged model of MLflow, and as a version of a registered one: each made once.

MLflow keeps no key by which making one twice could be refused. So whoever makes one looks for it first, by the run that
it is of, and the mirrors of a folder take turns.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from conf.schema import ConfigError
from tracking.record import ExportedModel, exported_model, run_folder
from tracking.request.name_checks import check_registered_name
from tracking.store.mirror import mlflow_run, model_files
from tracking.store.mirror.state import MirrorState, signature_of
from tracking.store.server import PatientClient, TrackingRefused, artifact_store, connection

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel
    from mlflow.store.artifact.artifact_repo import ArtifactRepository

VERSIONS_TAG = "mlflow.modelVersions"  # MLflow's pages show a logged model's registered versions by it


class ModelUpload:
    """The model of one folder on one server."""

    def __init__(self, folder: Path, client: PatientClient) -> None:
        self._folder = folder
        self._client = client

    def send(self, run_id: str, state: MirrorState, save: Callable[[], None]) -> list[str]:
        """Log and register the model where the folder has one; return what the server lacks of it after that.

        Raises TrackingRefused where the server takes no models, TrackingUnavailable and OSError.
        """
        signature = signature_of(self._folder, exported_model.ABOUT)
        if signature == state.model:
            return []
        try:
            exported = exported_model.read(self._folder)
            if exported is None:
                return []
            lacks = self._log(run_id, state, exported)
            if not lacks:
                self._register(run_id, state)
                state.model = signature
                save()
            return lacks
        except (TrackingRefused, ValueError) as error:
            raise TrackingRefused(f"the trained model: {error}") from None

    def _log(self, run_id: str, state: MirrorState, exported: ExportedModel) -> list[str]:
        model = self._logged(run_id, state, exported.name) or self._create(run_id, state, exported)
        state.model_id = mlflow_run.answered(model.model_id, "a logged model")
        store = artifact_store(self._client.uri, model.artifact_location)
        with model_files.prepared(self._folder, exported, model) as paths:
            wanted = model_files.sizes(paths)
            for name in self._lacking(store, wanted):
                with self._client.request(wanted[name]):
                    # MLflow wants the folder's name, and None for the model's own.
                    store.log_artifact(str(paths[name]), str(Path(name).parent) if "/" in name else None)
            if lacks := self._lacking(store, wanted):
                return [f"the model's file {name}" for name in lacks]
        if str(model.status) != "READY":
            with self._client.request() as client:
                client.finalize_logged_model(state.model_id, "READY")
        self._link(run_id, state.model_id, exported.step)
        return []

    def _logged(self, run_id: str, state: MirrorState, name: str) -> LoggedModel | None:
        """The model that was made of this run before, by whomever."""
        assert state.experiment_id
        with self._client.request() as client:
            models = client.search_logged_models([state.experiment_id], f"source_run_id = '{run_id}'")
        return next((model for model in models if model.name == name and model.source_run_id == run_id), None)

    def _create(self, run_id: str, state: MirrorState, exported: ExportedModel) -> LoggedModel:
        assert state.experiment_id
        params = {"kept": exported.kept, "step": str(exported.step)}
        with self._client.request() as client:
            return client.create_logged_model(state.experiment_id, exported.name, run_id, params=params)

    def _lacking(self, store: ArtifactRepository, wanted: dict[str, int]) -> list[str]:
        """The files that the server does not hold in their size; some stores do not tell sizes."""
        there: dict[str, int | None] = {}
        for inner in (None, model_files.DATA):
            with self._client.request():
                there |= {file.path: file.file_size for file in store.list_artifacts(inner)}
        return [name for name, size in wanted.items() if there.get(name, -1) not in (size, None)]

    def _link(self, run_id: str, model_id: str, step: int) -> None:
        """Have the run's page show the model."""
        from mlflow.entities import LoggedModelOutput

        with self._client.request() as client:
            outputs = client.get_run(run_id).outputs
        if not any(output.model_id == model_id for output in (outputs.model_outputs if outputs else ())):
            with self._client.request() as client:
                client.log_outputs(run_id, [LoggedModelOutput(model_id, step)])

    def _register(self, run_id: str, state: MirrorState) -> None:
        """Make a version of the registered model of the model, unless the run has one."""
        config = run_folder.read_config(self._folder)
        try:
            check_registered_name(config)  # the folder may be anybody's
        except ConfigError as error:
            raise TrackingRefused(str(error)) from None
        name, model_id = config.register_model, state.model_id
        if name is None or model_id is None:
            return
        with self._client.request() as client:
            versions = client.search_model_versions(f"run_id = '{run_id}'")
        version = next((version.version for version in versions if version.name == name), None)
        if version is None:
            self._ensure_registered(name)
            source = self._source(model_id)
            with self._client.request() as client:
                made = client.create_model_version(name, source, run_id, model_id=model_id, await_creation_for=0)
            version = mlflow_run.answered(str(made.version), f"a version of {name}")
        state.registered = f"{name}/{version}"
        with self._client.request() as client:
            client.set_logged_model_tags(
                model_id, {VERSIONS_TAG: json.dumps([{"name": name, "version": str(version)}])}
            )

    def _source(self, model_id: str) -> str:
        """What a version is made of: the model by its name, which a server finds, or where its files are.

        MLflow's own code of a database looks for that name in this process's default database, which may be another.
        """
        if connection.is_http(self._client.uri):
            return f"models:/{model_id}"
        with self._client.request() as client:
            return str(client.get_logged_model(model_id).artifact_location)

    def _ensure_registered(self, name: str) -> None:
        """Have the server keep a registered model of that name. Raises TrackingRefused where it is a prompt's: the
        server keeps both alike, and would take a model for the prompt's next version."""
        with self._client.request() as client:
            try:
                client.create_registered_model(name)
                return
            except Exception as error:  # narrowed at once: MLflow's classes are not importable at the top
                if code_of(error) != "RESOURCE_ALREADY_EXISTS":
                    raise
        with self._client.request() as client:
            try:
                client.get_registered_model(name)
            except Exception as error:  # MLflow's client finds no model where there is a prompt.
                if code_of(error) != "RESOURCE_DOES_NOT_EXIST":
                    raise
                raise TrackingRefused(f"register_model={name}: the server has a prompt of that name") from None


def code_of(error: Exception) -> str:
    return str(getattr(error, "error_code", ""))
