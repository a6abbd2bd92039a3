"""Whether a server keeps models: an MLflow before version 3, or a server that has them switched off, does not."""

from __future__ import annotations

from tracking.base.secrets import strip_credentials
from tracking.store.server import connection
from tracking.store.server.permissions import ask
from tracking.store.server.server_errors import TrackingRefused

NO_MODEL = "m-timetrial-asks"  # the answer to it is that there is none, where models are kept
REFUSALS = (403, 404, 405, 501)


def check_models(uri: str, register: bool) -> None:
    """Ask an HTTP tracking server for a model that it does not have, and for a registered one where that is wanted.

    Raises TrackingRefused where it knows no models, or lets this user have none. An outage says nothing.
    """
    if not connection.is_http(uri):
        return
    asked: dict[str, tuple[str, dict[str, str]]] = {"log_model=true": (f"2.0/mlflow/logged-models/{NO_MODEL}", {})}
    if register:
        asked["register_model"] = ("2.0/mlflow/registered-models/get", {"name": NO_MODEL})
    for key, (route, query) in asked.items():
        try:
            status, answer = ask(uri, route, **query)
        except OSError:
            return
        if status in REFUSALS and answer.get("error_code") != "RESOURCE_DOES_NOT_EXIST":
            said = str(answer.get("message", ""))[:300] or "it does not know the request"
            option = key.partition("=")[0]
            raise TrackingRefused(
                f"{key}: {strip_credentials(uri)} takes no models (HTTP {status}: {said}); leave {option} out"
                " and keep the weights with save_model=final tracking.upload_model=true, or give a server of MLflow 3"
                " that keeps models in tracking.uri"
            )
