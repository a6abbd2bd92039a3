"""A run as MLflow has it: its experiment, how it is found again, and what is said of it there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tracking.base.installation import LAUNCH
from tracking.base.secrets import strip_credentials
from tracking.store.server import TrackingRefused, TrackingUnavailable, artifact_root

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as MlflowRun

UID_TAG = "timetrial.uid"
BACK_TAG = "timetrial.run"  # of a script's own run of the same training, which journal.LINK_TAG leads to
VIEW_TAG = "mlflow.sharedViewState."  # starts an experiment's tag, and a view's name ends it
# Without it, MLflow's UI opens an experiment on traces, which a training has none of.
KIND_TAG, KIND = "mlflow.experimentKind", "custom_model_development"
UNKNOWN_KINDS = (None, "", "no_inferred_type")
SOURCE = {"mlflow.source.name": LAUNCH, "mlflow.source.type": "LOCAL"}


def answered(found_id: str, what: str) -> str:
    """The id in an answer. Raises TrackingUnavailable where it has none, as the acknowledgement of something else."""
    if not found_id:
        raise TrackingUnavailable(f"the server has answered without {what}: is it MLflow's, or a proxy that says so?")
    return found_id


def ensure_experiment(client: MlflowClient, uri: str, name: str) -> str:
    """The id of the experiment, made where it does not exist. Raises TrackingRefused, and what MLflow raises."""
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        try:
            made = client.create_experiment(name, artifact_root(uri), tags={KIND_TAG: KIND})
            return answered(str(made), f"the experiment {name!r}")
        except Exception as error:  # narrowed at once: MLflow's classes are not importable at the top
            if getattr(error, "error_code", "") != "RESOURCE_ALREADY_EXISTS":
                raise
            experiment = client.get_experiment_by_name(name)  # another process was faster
    assert experiment is not None
    answered(experiment.experiment_id, f"the experiment {name!r}")
    if experiment.lifecycle_stage != "active":
        raise TrackingRefused(
            f"{strip_credentials(uri)}: the experiment {name!r} is deleted: choose another tracking.experiment or "
            f"restore it with `mlflow experiments restore --experiment-id {experiment.experiment_id}`"
        )
    return str(experiment.experiment_id)


def declare_kind(client: MlflowClient, experiment_id: str) -> None:
    """Have the UI open an experiment on its runs, unless somebody has said that it is of another kind."""
    if client.get_experiment(experiment_id).tags.get(KIND_TAG) in UNKNOWN_KINDS:
        client.set_experiment_tag(experiment_id, KIND_TAG, KIND)


def drop_tags(client: MlflowClient, run_id: str, keys: Sequence[str]) -> None:
    """Delete tags of a run, as far as it has them: an earlier deletion may have come through without an answer."""
    there = client.get_run(run_id).data.tags
    for key in keys:
        if key in there:
            client.delete_tag(run_id, key)


def runs_with_uid(client: MlflowClient, experiment_id: str, uid: str) -> list[MlflowRun]:
    """Every run that was made for a folder, the one that holds metrics first."""
    runs = client.search_runs([experiment_id], f"tags.`{UID_TAG}` = '{uid}'", max_results=100)
    return sorted(runs, key=lambda run: (not run.data.metrics, run.info.run_id))


def folder_owner(folder: Path) -> str:
    """The user whose folder it is."""
    try:
        return folder.owner()
    except KeyError:  # a container may know the number of a user and not the name
        return str(folder.stat().st_uid)
