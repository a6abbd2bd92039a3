"""A run as MLflow has it: its experiment, how it is found again, and what is said of it there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from conf.secrets import strip_credentials
from tracking.mirror.log_batches import MAX_TAG_CHARS, shortened
from tracking.mirror.server import TrackingRefused, artifact_root
from tracking.run import Failure

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as MlflowRun

UID_TAG = "timetrial.uid"
NOTE_TAG = "mlflow.note.content"
VIEW_TAG = "mlflow.sharedViewState."  # starts an experiment's tag, and a view's name ends it
# Without it, MLflow's UI guesses of what kind an experiment is, and asks whether that is right.
EXPERIMENT_KIND = {"mlflow.experimentKind": "custom_model_development"}
LAST_WORDS_CHARS = 4000


def ensure_experiment(client: MlflowClient, uri: str, name: str) -> str:
    """The id of the experiment, made where it does not exist. Raises TrackingRefused, and what MLflow raises."""
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        try:
            return str(client.create_experiment(name, artifact_root(uri), tags=EXPERIMENT_KIND))
        except Exception as error:  # narrowed at once: MLflow's classes are not importable at the top
            if getattr(error, "error_code", "") != "RESOURCE_ALREADY_EXISTS":
                raise
            experiment = client.get_experiment_by_name(name)  # another process was faster
    assert experiment is not None
    if experiment.lifecycle_stage != "active":
        raise TrackingRefused(
            f"{strip_credentials(uri)}: the experiment {name!r} is deleted: choose another tracking.experiment or "
            f"restore it with `mlflow experiments restore --experiment-id {experiment.experiment_id}`"
        )
    return str(experiment.experiment_id)


def runs_with_uid(client: MlflowClient, experiment_id: str, uid: str) -> list[MlflowRun]:
    """Every run that was made for a folder, the one that holds metrics first."""
    runs = client.search_runs([experiment_id], f"tags.`{UID_TAG}` = '{uid}'", max_results=100)
    return sorted(runs, key=lambda run: (not run.data.metrics, run.info.run_id))


def failure_tags(failure: Failure, with_note: bool) -> dict[str, str]:
    """The tags of a run that failed; its description holds the cause and the worker's last words."""
    tags = {"failure": failure.kind}
    if with_note:
        cause = shortened(failure.message, MAX_TAG_CHARS - LAST_WORDS_CHARS - 100)
        words = failure.traceback.strip().replace("```", "` ` `")[-LAST_WORDS_CHARS:]
        tags[NOTE_TAG] = f"{cause}\n\n```\n{words}\n```" if words else cause
    return tags


def folder_owner(folder: Path) -> str:
    """The user whose folder it is."""
    try:
        return folder.owner()
    except KeyError:  # a container may know the number of a user and not the name
        return str(folder.stat().st_uid)
