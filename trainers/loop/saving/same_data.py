"""Refuses to resume a run on other data than it began with."""

from __future__ import annotations

from pathlib import Path

from conf.schema import ConfigError
from tracking.record import Journal, journal, run_folder
from trainers.workload import Data, Versioned

TAG = "data.version"


def data_version(data: Data) -> dict[str, str]:
    """Return the tag that identifies the content of the data; empty for data without a version."""
    return {TAG: data.version()} if isinstance(data, Versioned) else {}


def keep_to_version(data: Data, run_dir: Path, log: Journal) -> None:
    """Journal the data's version, if the run saves checkpoints. Raises ConfigError if it has changed since the start.

    Evaluations before and after an interruption must be on the same data; else they cannot be compared.
    """
    version = data_version(data)
    former = {}
    for record, _ in journal.read(run_dir / run_folder.JOURNAL):
        if record.kind == "tags" and TAG in record.values:
            former = {TAG: record.values[TAG]}
    if former and version and former != version:
        raise ConfigError(
            f"dataset: its content has changed since this run began ({TAG} was {former[TAG]}, is {version[TAG]})."
            " Next: put the former data back and resume, or begin a new run"
        )
    log.tags(version)
