"""A run in MLflow: its experiment, its tags, and how the one run is found or created that has a folder's uid.

The uid is in run.json, so copies of a folder share it. MLflow has no atomic "create if absent". So a mirror that
creates a run searches again; if it finds another run, it deletes its own and starts over. If two mirrors create at the
same time, at most one keeps its run, since the later search comes after the earlier creation.
"""

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

import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tracking.store.server import PatientClient

if TYPE_CHECKING:
    from mlflow.entities import Run as MlflowRun

UID_TAG = "timetrial.uid"
BACK_TAG = "timetrial.run"  # on a script's own run of the same training, the target of journal.LINK_TAG
VIEW_TAG = "mlflow.sharedViewState."  # an experiment's tag: this prefix and the view's name
# Without this tag, MLflow's UI opens an experiment on its traces, and trainings have none.
KIND_TAG, KIND = "mlflow.experimentKind", "custom_model_development"
UNKNOWN_KINDS = (None, "", "no_inferred_type")
SOURCE = {"mlflow.source.name": LAUNCH.removeprefix("python "), "mlflow.source.type": "LOCAL"}
MAX_TRIES = 6
FIRST_PAUSE_SEC = 0.5  # the longest pause after the first try; it doubles with each


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


def is_ours(client: PatientClient, run_id: str, experiment_id: str | None, uid: str) -> bool:
    """Whether a run has the uid and can be continued. A deleted run can, unless another run has the uid."""
    with client.request() as mlflow:
        run = mlflow.get_run(run_id)
    checked_id(run.info.run_id, f"the run {run_id}")
    if run.data.tags.get(UID_TAG) != uid:
        return False
    return run.info.lifecycle_stage == "active" or not (experiment_id and find_runs(client, experiment_id, uid))


def claim(client: PatientClient, experiment_id: str, uid: str, create: Callable[[], str]) -> str:
    """The id of the run with this uid: an existing one, or one made by `create`."""
    for attempt in range(MAX_TRIES):
        if runs := find_runs(client, experiment_id, uid):
            return str(runs[0].info.run_id)
        run_id = create()
        if all(run.info.run_id == run_id for run in find_runs(client, experiment_id, uid)):
            return run_id
        with client.request() as mlflow:
            mlflow.delete_run(run_id)
        time.sleep(random.uniform(0, FIRST_PAUSE_SEC * 2**attempt))
    raise TrackingUnavailable(f"copies of this folder (uid {uid}) keep creating runs. Next: upload one copy at a time")


def find_runs(client: PatientClient, experiment_id: str, uid: str) -> list[MlflowRun]:
    return client.ask(lambda mlflow: runs_with_uid(mlflow, experiment_id, uid))


def add_tags(client: PatientClient, run_id: str, tags: Mapping[str, str]) -> None:
    """Set the tags that a run does not have yet."""
    with client.request() as mlflow:
        existing = mlflow.get_run(run_id).data.tags
    for key, value in tags.items():
        if key not in existing:
            with client.request() as mlflow:
                mlflow.set_tag(run_id, key, value)


def remove_duplicates(client: PatientClient, experiment_id: str, uid: str, run_id: str) -> None:
    """Delete empty duplicates: runs whose creation succeeded after its timeout, when another run had been created."""
    for run in find_runs(client, experiment_id, uid):
        if run.info.run_id != run_id and not run.data.metrics and not run.data.params:
            with client.request() as mlflow:
                mlflow.delete_run(run.info.run_id)
