"""Which run of a server is a folder's: the one that bears the folder's uid, and only one does.

The uid lies in run.json, so a copy of a folder has the same. MLflow cannot make a run only where there is none yet, so
whoever makes one looks again. Where another is there by then, he takes his own back and starts over. Of two that do it
at the same time, one at the most keeps his: the later one's look comes after the earlier one's creation.
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
MAX_PAUSE_SEC = 0.5  # the first; it doubles with each try


def is_ours(client: PatientClient, run_id: str, experiment_id: str | None, uid: str) -> bool:
    """Whether a run bears the uid, and is the one to go on with: of one that is deleted, whether no other bears it."""
    with client.request() as mlflow:
        run = mlflow.get_run(run_id)
    mlflow_run.answered(run.info.run_id, f"the run {run_id}")
    if run.data.tags.get(UID_TAG) != uid:
        return False
    return run.info.lifecycle_stage == "active" or not (experiment_id and runs_of(client, experiment_id, uid))


def claim(client: PatientClient, experiment_id: str, uid: str, create: Callable[[], str]) -> str:
    """The id of the run with this uid: of the one that is there, or of the one that `create` makes with it."""
    for attempt in range(MAX_TRIES):
        if runs := runs_of(client, experiment_id, uid):
            return str(runs[0].info.run_id)
        run_id = create()
        if all(run.info.run_id == run_id for run in runs_of(client, experiment_id, uid)):
            return run_id
        with client.request() as mlflow:
            mlflow.delete_run(run_id)
        time.sleep(random.uniform(0, MAX_PAUSE_SEC * 2**attempt))
    raise TrackingUnavailable(f"others make a run of the same uid ({uid}) all the time: copies of one folder")


def runs_of(client: PatientClient, experiment_id: str, uid: str) -> list[MlflowRun]:
    with client.request() as mlflow:
        return mlflow_run.runs_with_uid(mlflow, experiment_id, uid)


def add_tags(client: PatientClient, run_id: str, tags: Mapping[str, str]) -> None:
    """Give a run the tags that it lacks."""
    with client.request() as mlflow:
        there = mlflow.get_run(run_id).data.tags
    for key, value in tags.items():
        if key not in there:
            with client.request() as mlflow:
                mlflow.set_tag(run_id, key, value)


def remove_doubles(client: PatientClient, experiment_id: str, uid: str, run_id: str) -> None:
    """Delete the empty run that a creation leaves when it lands after we gave it up and created another."""
    for run in runs_of(client, experiment_id, uid):
        if run.info.run_id != run_id and not run.data.metrics and not run.data.params:
            with client.request() as mlflow:
                mlflow.delete_run(run.info.run_id)
