"""Find or create the one run on a server that has a folder's uid.

The uid is in run.json, so copies of a folder share it. MLflow has no atomic "create if absent". So a mirror that
creates a run searches again; if it finds another run, it deletes its own and starts over. If two mirrors create at the
same time, at most one keeps its run, since the later search comes after the earlier creation.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tracking.store.mirror import mlflow_run
from tracking.store.mirror.mlflow_run import UID_TAG
from tracking.store.server import PatientClient, TrackingUnavailable

if TYPE_CHECKING:
    from mlflow.entities import Run as MlflowRun

MAX_TRIES = 6
FIRST_PAUSE_SEC = 0.5  # the longest pause after the first try; it doubles with each


def is_ours(client: PatientClient, run_id: str, experiment_id: str | None, uid: str) -> bool:
    """Whether a run has the uid and can be continued. A deleted run can, unless another run has the uid."""
    with client.request() as mlflow:
        run = mlflow.get_run(run_id)
    mlflow_run.checked_id(run.info.run_id, f"the run {run_id}")
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
    return client.ask(lambda mlflow: mlflow_run.runs_with_uid(mlflow, experiment_id, uid))


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
