"""The MLflow settings of a script: its server, its experiment and its own run, without importing MLflow."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from conf.schema import ConfigError
from tracking.base.secrets import strip_credentials
from tracking.request.name_checks import check_uri
from tracking.store import server

DEFAULT_EXPERIMENT = "timetrial"


def script_uri() -> tuple[str, str]:
    """The tracking server for uploads without `uri=`, and why it is not the script's own; empty if it is.

    `mlflow.set_tracking_uri` sets MLFLOW_TRACKING_URI, so both have the same effect.
    """
    uri = server.default_uri()
    try:
        check_uri(strip_credentials(uri), "MLFLOW_TRACKING_URI")
    except ConfigError as error:
        return server.absolute_uri("sqlite:///mlflow.db"), f"uploads go to sqlite:///mlflow.db, since {error}"
    return uri, ""


def script_experiment(uri: str) -> str:
    """The experiment that the script has set, or that of its active run; else ours."""
    mlflow = sys.modules.get("mlflow")
    if mlflow is None:
        return DEFAULT_EXPERIMENT
    if name := os.environ.get("MLFLOW_EXPERIMENT_NAME"):
        return name
    active = _active_run(mlflow)
    experiment_id = active.info.experiment_id if active else os.environ.get("MLFLOW_EXPERIMENT_ID")
    if not experiment_id:
        return DEFAULT_EXPERIMENT
    client = server.PatientClient(uri, "")
    try:
        with _short_timeouts(), client.request() as requests:
            return str(requests.get_experiment(experiment_id).name)
    except (server.TrackingUnavailable, server.TrackingRefused):  # The experiment may be on another server.
        return DEFAULT_EXPERIMENT


def active_run_id(loggers: Iterable[Any] = ()) -> str | None:
    """The id of the run that the script logs to: the active one, or that of a Lightning logger."""
    mlflow = sys.modules.get("mlflow")
    if mlflow is not None and (active := _active_run(mlflow)):
        return str(active.info.run_id)
    ids = (vars(logger).get("_run_id") for logger in loggers if type(logger).__name__ == "MLFlowLogger")
    return next((str(run_id) for run_id in ids if run_id), None)


def _active_run(mlflow: Any) -> Any:
    return getattr(mlflow, "active_run", lambda: None)()  # During its import, MLflow may not have it yet.


@contextmanager
def _short_timeouts() -> Iterator[None]:
    """Limit requests to one try of some seconds, unless the script has set its own limits. MLflow's is 4 minutes."""
    unset = {name: value for name, value in server.ENVIRONMENT.items() if name not in os.environ}
    os.environ.update(unset)
    try:
        yield
    finally:
        for name in unset:
            os.environ.pop(name, None)
