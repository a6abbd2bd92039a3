"""Upload a run's trained model as a logged model of MLflow and a version of a registered model, each once.

MLflow has no key that would refuse a second creation. So a mirror first searches for the run's model, and the mirrors
of a folder take turns. The model's files for mlflow.pytorch and mlflow.pyfunc are made from the worker's export.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from conf.schema import ConfigError
from tracking.record import ExportedModel, exported_model, run_folder
from tracking.request.name_checks import check_registered_name
from tracking.store.mirror import mlflow_run
from tracking.store.mirror.state import MirrorState, signature_of
from tracking.store.server import PatientClient, TrackingRefused, artifact_store, connection

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel
    from mlflow.store.artifact.artifact_repo import ArtifactRepository

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tracking.record import files

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel
    from mlflow.types import Schema

VERSIONS_TAG = "mlflow.modelVersions"  # MLflow's pages read a logged model's registered versions from it
DATA = "data"  # the folder in which mlflow.pytorch looks for the program
PROGRAM = f"{DATA}/model.pt2"  # MLflow's name for a program of torch.export
EXAMPLE, REQUIREMENTS, PYTHON_ENV, CONDA = "input_example.json", "requirements.txt", "python_env.yaml", "conda.yaml"
SERVING = "serving_input_example.json"  # the example as a request to `mlflow models serve`
MLMODEL = "MLmodel"  # uploaded last, since it turns a folder into a model
FILES = (PROGRAM, EXAMPLE, SERVING, REQUIREMENTS, PYTHON_ENV, CONDA, MLMODEL)


class ModelUpload:
    """The model of one folder on one server."""

    def __init__(self, folder: Path, client: PatientClient) -> None:
        self._folder = folder
        self._client = client

    def send(self, run_id: str, state: MirrorState, save: Callable[[], None]) -> list[str]:
        """Log and register the folder's model, if it has one; return what is still missing on the server.

        Raises TrackingRefused if the server takes no models, TrackingUnavailable and OSError.
        """
        signature = signature_of(self._folder, exported_model.DESCRIPTION)
        if signature == state.model:
            return []
        try:
            exported = exported_model.read(self._folder)
            if exported is None:
                return []
            missing = self._log(run_id, state, exported)
            if not missing:
                self._register(run_id, state)
                state.model = signature
                save()
            return missing
        except (TrackingRefused, ValueError) as error:
            raise TrackingRefused(f"the trained model: {error}") from None

    def _log(self, run_id: str, state: MirrorState, exported: ExportedModel) -> list[str]:
        model = self._find_logged(run_id, state, exported.name) or self._create(run_id, state, exported)
        state.model_id = mlflow_run.checked_id(model.model_id, "a logged model")
        store = artifact_store(self._client.uri, model.artifact_location)
        with write_files(self._folder, exported, model) as paths:
            expected = sizes(paths)
            for name in self._missing_files(store, expected):
                with self._client.request(expected[name]):
                    # MLflow takes the name of the folder, or None for the model's top folder.
                    store.log_artifact(str(paths[name]), str(Path(name).parent) if "/" in name else None)
            if missing := self._missing_files(store, expected):
                return [f"the model's file {name}" for name in missing]
        if str(model.status) != "READY":
            with self._client.request() as client:
                client.finalize_logged_model(state.model_id, "READY")
        self._link(run_id, state.model_id, exported.step)
        return []

    def _find_logged(self, run_id: str, state: MirrorState, name: str) -> LoggedModel | None:
        """The model that was already logged for this run, by any mirror; else None."""
        assert state.experiment_id
        with self._client.request() as client:
            models = client.search_logged_models([state.experiment_id], f"source_run_id = '{run_id}'")
        return next((model for model in models if model.name == name and model.source_run_id == run_id), None)

    def _create(self, run_id: str, state: MirrorState, exported: ExportedModel) -> LoggedModel:
        assert state.experiment_id
        params = {"kept": exported.kept, "step": str(exported.step)}
        with self._client.request() as client:
            return client.create_logged_model(state.experiment_id, exported.name, run_id, params=params)

    def _missing_files(self, store: ArtifactRepository, sizes: dict[str, int]) -> list[str]:
        """The files that the server does not hold in the expected size; some stores report no sizes."""
        stored: dict[str, int | None] = {}
        for folder in (None, DATA):
            with self._client.request():
                stored |= {file.path: file.file_size for file in store.list_artifacts(folder)}
        return [name for name, size in sizes.items() if stored.get(name, -1) not in (size, None)]

    def _link(self, run_id: str, model_id: str, step: int) -> None:
        """Show the model on the run's page."""
        from mlflow.entities import LoggedModelOutput

        with self._client.request() as client:
            outputs = client.get_run(run_id).outputs
        if not any(output.model_id == model_id for output in (outputs.model_outputs if outputs else ())):
            with self._client.request() as client:
                client.log_outputs(run_id, [LoggedModelOutput(model_id, step)])

    def _register(self, run_id: str, state: MirrorState) -> None:
        """Create a version of the registered model from the run's model, unless the run has one."""
        config = run_folder.read_config(self._folder)
        try:
            check_registered_name(config)  # anybody may have written the folder
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
                created = client.create_model_version(name, source, run_id, model_id=model_id, await_creation_for=0)
            version = mlflow_run.checked_id(str(created.version), f"a version of {name}")
        state.registered = f"{name}/{version}"
        with self._client.request() as client:
            client.set_logged_model_tags(
                model_id, {VERSIONS_TAG: json.dumps([{"name": name, "version": str(version)}])}
            )

    def _source(self, model_id: str) -> str:
        """The source of a version: for a server the model's name, for a database the location of its files.

        For a database, MLflow's own code looks the name up in the process's default database, which may be another.
        """
        if connection.is_http(self._client.uri):
            return f"models:/{model_id}"
        with self._client.request() as client:
            return str(client.get_logged_model(model_id).artifact_location)

    def _ensure_registered(self, name: str) -> None:
        """Create the registered model if it does not exist.

        Raises TrackingRefused if a prompt has the name, since the server would take a model for its next version.
        """
        with self._client.request() as client:
            try:
                client.create_registered_model(name)
                return
            except Exception as error:  # narrowed at once: MLflow's classes are not importable at the top
                if error_code(error) != "RESOURCE_ALREADY_EXISTS":
                    raise
        with self._client.request() as client:
            try:
                client.get_registered_model(name)
            except Exception as error:  # MLflow's client does not find a model if the name is a prompt's
                if error_code(error) != "RESOURCE_DOES_NOT_EXIST":
                    raise
                raise TrackingRefused(
                    f"register_model={name}: the server has a prompt of that name. Next: give another name"
                ) from None


def error_code(error: Exception) -> str:
    return str(getattr(error, "error_code", ""))


@contextmanager
def write_files(folder: Path, exported: ExportedModel, logged: LoggedModel) -> Iterator[dict[str, Path]]:
    """Write the model's files to a temporary folder. Yields their paths by path in the model. Raises OSError."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory()))
        (scratch / DATA).mkdir()
        for name, source in ((PROGRAM, exported_model.PROGRAM), (EXAMPLE, exported_model.EXAMPLE)):
            (scratch / name).symlink_to(stack.enter_context(files.pinned(folder / source)))
        (scratch / SERVING).write_text(f'{{"inputs": {(scratch / EXAMPLE).read_text()}}}')
        _write_environment(scratch, exported)
        _write_mlmodel(scratch, exported, logged)
        yield {name: scratch / name for name in FILES}


def _write_environment(scratch: Path, exported: ExportedModel) -> None:
    """Write the requirements: the PyTorch that exported the program, and an MLflow that knows the format."""
    import mlflow
    import yaml

    # Without the build after the plus, which only PyTorch's own package index has.
    requirements = [f"mlflow=={mlflow.__version__}", "numpy", f"torch=={exported.torch.partition('+')[0]}"]
    (scratch / REQUIREMENTS).write_text("\n".join(requirements) + "\n")
    python_env = {"python": exported.python, "build_dependencies": ["pip"], "dependencies": [f"-r {REQUIREMENTS}"]}
    (scratch / PYTHON_ENV).write_text(yaml.safe_dump(python_env))
    packages = [f"python={exported.python}", "pip", {"pip": requirements}]
    conda = {"name": "mlflow-env", "channels": ["conda-forge"], "dependencies": packages}
    (scratch / CONDA).write_text(yaml.safe_dump(conda))


def _write_mlmodel(scratch: Path, exported: ExportedModel, logged: LoggedModel) -> None:
    from mlflow import pyfunc
    from mlflow.models import Model, ModelSignature

    example = {"artifact_path": EXAMPLE, "type": "ndarray", "format": "tf-serving", "serving_input_path": SERVING}
    model = Model(
        artifact_path=logged.artifact_location,
        run_id=logged.source_run_id,
        model_uuid=logged.model_id,
        model_id=logged.model_id,
        signature=ModelSignature(_schema(exported.inputs), _schema(exported.outputs)),
        saved_input_example_info=example,
        model_size_bytes=(scratch / PROGRAM).stat().st_size,
    )
    model.add_flavor("pytorch", model_data=DATA, pytorch_version=exported.torch, code=None)
    environments = {"conda_env": CONDA, "python_env": PYTHON_ENV}
    # The program was exported for a CPU; MLflow would look for a GPU.
    on_cpu = {"device": "cpu"}
    pyfunc.add_to_model(model, loader_module="mlflow.pytorch", data=DATA, model_config=on_cpu, **environments)
    model.save(str(scratch / MLMODEL))


def _schema(array: exported_model.Array) -> Schema:
    import numpy as np
    from mlflow.types import Schema, TensorSpec

    return Schema([TensorSpec(np.dtype(array.dtype), tuple(array.shape))])


def sizes(paths: dict[str, Path]) -> dict[str, int]:
    return {name: path.stat().st_size for name, path in paths.items()}
