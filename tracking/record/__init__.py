"""A run on disk: its folder, journal, lock, checkpoints, attempts and failures.

Everything else about a run can be made again from this folder. Writers replace whole files or append whole lines, so
that readers never see half of either. This room imports neither MLflow nor PyTorch.
"""

from tracking.record import (
    attempts,
    checkpoints,
    documents,
    evaluations,
    exported_model,
    failures,
    files,
    journal,
    node_records,
    run_folder,
    run_lock,
    signature,
    typed_json,
)
from tracking.record.checkpoints import Checkpoint
from tracking.record.evaluations import headline
from tracking.record.exported_model import ExportedModel
from tracking.record.journal import NOTE_TAG, UNKNOWN_TAG, Journal, Record, part_of_start
from tracking.record.run_folder import Failure, Result, RunInfo
from tracking.record.run_lock import Running
from tracking.record.worker_log import WorkerLog

__all__ = [
    "NOTE_TAG", "UNKNOWN_TAG", "Checkpoint", "ExportedModel", "Failure", "Journal", "Record", "Result", "RunInfo",
    "Running", "WorkerLog", "attempts", "checkpoints", "documents", "evaluations", "exported_model", "failures",
    "files", "headline", "journal", "node_records", "part_of_start", "run_folder", "run_lock", "signature",
    "typed_json",
]  # fmt: skip
