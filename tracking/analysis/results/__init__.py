"""Read runs back, with the same values from MLflow and from run folders, as flat keys and as tables.

Comparisons and reports read runs through this room only, and do not depend on the source. `MlflowRuns.attach` alone
writes.
"""

from tracking.analysis.results.flat_keys import NONE, differing, flat, relative_change, words
from tracking.analysis.results.folder_runs import FolderRuns
from tracking.analysis.results.mlflow_runs import MlflowRuns
from tracking.analysis.results.runs import (
    BETTER_TAG,
    EXPLORING,
    PAIRED_TAG,
    REPEATS,
    SEARCH_TAG,
    TASK,
    UNCOUNTED_TAG,
    End,
    Run,
    Runs,
    newest_attempts,
    none_finished,
)
from tracking.analysis.results.table import Cell, Table

__all__ = [
    "BETTER_TAG", "EXPLORING", "NONE", "PAIRED_TAG", "REPEATS", "SEARCH_TAG", "TASK", "UNCOUNTED_TAG", "Cell", "End",
    "FolderRuns", "MlflowRuns", "Run", "Runs", "Table", "differing", "flat", "newest_attempts", "none_finished",
    "relative_change", "words",
]  # fmt: skip
