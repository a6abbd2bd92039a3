"""Mirror a run's folder to MLflow: new journal records in batches, and the files once the run has ended.

A mirror may be killed at any time. The next one continues where it stopped, without losing or repeating a row. Only
functions that upload import mlflow, since that takes seconds.
"""

from tracking.store.mirror.description import end_tags
from tracking.store.mirror.log_batches import MAX_TAG_CHARS, RUN_START_TAG, log_batches, shortened
from tracking.store.mirror.mirror import Mirror
from tracking.store.mirror.mlflow_run import UID_TAG
from tracking.store.mirror.state import STATUS

__all__ = [
    "MAX_TAG_CHARS", "RUN_START_TAG", "STATUS", "UID_TAG", "Mirror", "end_tags", "log_batches",
    "shortened",
]  # fmt: skip
