"""The tracking server of a run: a team's server over HTTP, or a database in a file.

This room sends requests with short timeouts, interprets answers and failures, decides which servers get the user's
credentials, creates new databases, and links to MLflow's pages. Functions import mlflow where they need it, since that
takes seconds.
"""

from tracking.store.server import connection
from tracking.store.server.database import open_client
from tracking.store.server.models import check_models
from tracking.store.server.patient_client import PatientClient
from tracking.store.server.server_errors import (
    ENVIRONMENT,
    TrackingRefused,
    TrackingUnavailable,
    as_tracking_errors,
    check_server,
)
from tracking.store.server.stores import artifact_store
from tracking.store.server.uris import (
    absolute_uri,
    artifact_root,
    compare_link,
    default_uri,
    experiment_link,
    option_uri,
    run_link,
    search_link,
    ui_command,
    view_link,
)

__all__ = [
    "ENVIRONMENT", "PatientClient", "TrackingRefused", "TrackingUnavailable", "absolute_uri", "artifact_root",
    "artifact_store", "as_tracking_errors", "check_models", "check_server", "compare_link", "connection", "default_uri",
    "experiment_link", "open_client", "option_uri", "run_link", "search_link", "ui_command", "view_link",
]  # fmt: skip
