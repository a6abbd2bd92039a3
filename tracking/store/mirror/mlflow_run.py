"""A run in MLflow: its experiment, its search by uid, and its tags."""

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
BACK_TAG = "timetrial.run"  # on a script's own run of the same training, the target of journal.LINK_TAG
VIEW_TAG = "mlflow.sharedViewState."  # an experiment's tag: this prefix and the view's name
# Without this tag, MLflow's UI opens an experiment on its traces, and trainings have none.
KIND_TAG, KIND = "mlflow.experimentKind", "custom_model_development"
UNKNOWN_KINDS = (None, "", "no_inferred_type")
SOURCE = {"mlflow.source.name": LAUNCH.removeprefix("python "), "mlflow.source.type": "LOCAL"}


def checked_id(answer_id: str, description: str) -> str:
    """The id in an answer. Raises TrackingUnavailable for an answer without an id, such as a proxy's."""
    if not answer_id:
        raise TrackingUnavailable(
            f"the server has answered without {description}. Next: check that MLflow answers, not a proxy"
        )
    return answer_id


def ensure_experiment(client: MlflowClient, uri: str, name: str) -> str:
    """The id of the experiment, created if it does not exist. Raises TrackingRefused, and what MLflow raises."""
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        try:
            created = client.create_experiment(name, artifact_root(uri), tags={KIND_TAG: KIND})
            return checked_id(str(created), f"the experiment {name!r}")
        except Exception as error:  # narrowed at once: MLflow's classes are not importable at the top
            if getattr(error, "error_code", "") != "RESOURCE_ALREADY_EXISTS":
                raise
            experiment = client.get_experiment_by_name(name)  # another process was faster
    assert experiment is not None
    checked_id(experiment.experiment_id, f"the experiment {name!r}")
    if experiment.lifecycle_stage != "active":
        raise TrackingRefused(
            f"{strip_credentials(uri)}: the experiment {name!r} is deleted. Next: give another tracking.experiment, or "
            f"restore it with `mlflow experiments restore --experiment-id {experiment.experiment_id}`"
        )
    return str(experiment.experiment_id)


def declare_kind(client: MlflowClient, experiment_id: str) -> None:
    """Make the UI open an experiment on its runs, unless the experiment has another kind already."""
    if client.get_experiment(experiment_id).tags.get(KIND_TAG) in UNKNOWN_KINDS:
        client.set_experiment_tag(experiment_id, KIND_TAG, KIND)


def drop_tags(client: MlflowClient, run_id: str, keys: Sequence[str]) -> None:
    """Delete those tags that a run has; an earlier deletion may have succeeded without an answer."""
    existing = client.get_run(run_id).data.tags
    for key in keys:
        if key in existing:
            client.delete_tag(run_id, key)


def runs_with_uid(client: MlflowClient, experiment_id: str, uid: str) -> list[MlflowRun]:
    """All runs with a folder's uid, those with metrics first."""
    runs = client.search_runs([experiment_id], f"tags.`{UID_TAG}` = '{uid}'", max_results=100)
    return sorted(runs, key=lambda run: (not run.data.metrics, run.info.run_id))


def folder_owner(folder: Path) -> str:
    """The user who owns the folder, by name, else by number."""
    try:
        return folder.owner()
    except KeyError:  # a container may not know the user's name
        return str(folder.stat().st_uid)
