"""The tracking server that a run goes to: a team's over HTTP, or a database in a file.

Here is how it is asked within seconds, what its answers and failures mean, who may be sent the user's credentials,
how a new database is made whole, and where its pages are. `import mlflow` is left to the functions that need it,
since it takes seconds.
"""

from __future__ import annotations

from tracking.store.server import connection
from tracking.store.server.database import open_client
from tracking.store.server.models import check_models
from tracking.store.server.patient_client import PatientClient
from tracking.store.server.server_errors import ENVIRONMENT, TrackingRefused, TrackingUnavailable, answers, check_server
from tracking.store.server.stores import artifact_store
from tracking.store.server.ui_links import compare_link, experiment_link, run_link, search_link, ui_command, view_link
from tracking.store.server.uris import absolute_uri, artifact_root, default_uri, named

__all__ = [
    "ENVIRONMENT",
    "PatientClient",
    "TrackingRefused",
    "TrackingUnavailable",
    "absolute_uri",
    "answers",
    "artifact_root",
    "artifact_store",
    "check_models",
    "check_server",
    "compare_link",
    "connection",
    "default_uri",
    "experiment_link",
    "named",
    "open_client",
    "run_link",
    "search_link",
    "ui_command",
    "view_link",
]
