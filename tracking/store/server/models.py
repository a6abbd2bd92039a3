"""Check that a server keeps models; MLflow before version 3 and servers with models switched off do not."""

from __future__ import annotations

from tracking.base.secrets import strip_credentials
from tracking.store.server import connection
from tracking.store.server.permissions import ask
from tracking.store.server.server_errors import TrackingRefused

NO_MODEL = "m-timetrial-asks"  # no model has this id; a server that keeps models says so
REFUSALS = (403, 404, 405, 501)


def check_models(uri: str, register: bool) -> None:
    """Ask an HTTP tracking server for a model that does not exist; with `register`, also for a registered one.

    Raises TrackingRefused if it keeps no models, or none for this user. An outage raises nothing.
    """
    if not connection.is_http(uri):
        return
    requests: dict[str, tuple[str, dict[str, str]]] = {"log_model=true": (f"2.0/mlflow/logged-models/{NO_MODEL}", {})}
    if register:
        requests["register_model"] = ("2.0/mlflow/registered-models/get", {"name": NO_MODEL})
    for key, (route, query) in requests.items():
        try:
            status, answer = ask(uri, route, **query)
        except OSError:
            return
        if status in REFUSALS and answer.get("error_code") != "RESOURCE_DOES_NOT_EXIST":
            message = str(answer.get("message", ""))[:300] or "unknown request"
            option = key.partition("=")[0]
            raise TrackingRefused(
                f"{key}: {strip_credentials(uri)} takes no models (HTTP {status}: {message}). Next: leave {option} out"
                " and keep the weights with save_model=final tracking.upload_model=true, or set tracking.uri to a"
                " server of MLflow 3 that keeps models"
            )
