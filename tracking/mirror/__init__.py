"""From a run's folder to MLflow: what is new in the journal goes up in batches, and its files when the run has ended.

A mirror may be killed at any time, and another one goes on where it stopped, without a row lost or doubled. How a
server is reached, what it refuses and why is here as well. `import mlflow` is left to the functions that upload,
since it takes seconds.
"""

from __future__ import annotations

from tracking.mirror import connection, recipients, server
from tracking.mirror.database import open_client
from tracking.mirror.description import NOTE_TAG, end_tags, recorded
from tracking.mirror.log_batches import MAX_TAG_CHARS, log_batches, shortened
from tracking.mirror.mirror import Mirror
from tracking.mirror.mlflow_run import UID_TAG
from tracking.mirror.server import ENVIRONMENT, TrackingRefused, TrackingUnavailable
from tracking.mirror.state import STATUS

__all__ = [
    "ENVIRONMENT",
    "MAX_TAG_CHARS",
    "NOTE_TAG",
    "STATUS",
    "UID_TAG",
    "Mirror",
    "TrackingRefused",
    "TrackingUnavailable",
    "connection",
    "end_tags",
    "log_batches",
    "open_client",
    "recipients",
    "recorded",
    "server",
    "shortened",
]
