"""From a run's folder to MLflow: what is new in the journal goes up in batches, and its files when the run has ended.

A mirror may be killed at any time, and another one goes on where it stopped, without a row lost or doubled. `import
mlflow` is left to the functions that upload, since it takes seconds.
"""

from __future__ import annotations

from tracking.store.mirror.description import end_tags, recorded
from tracking.store.mirror.log_batches import MAX_TAG_CHARS, RUN_START_TAG, log_batches, shortened
from tracking.store.mirror.mirror import Mirror
from tracking.store.mirror.mlflow_run import UID_TAG
from tracking.store.mirror.state import STATUS

__all__ = [
    "MAX_TAG_CHARS",
    "RUN_START_TAG",
    "STATUS",
    "UID_TAG",
    "Mirror",
    "end_tags",
    "log_batches",
    "recorded",
    "shortened",
]
