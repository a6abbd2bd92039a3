"""Run folders as a training leaves them for the mirror."""

from __future__ import annotations

import time
from pathlib import Path

from tests.support.commands import HANGS_SEC
from tracking.record import documents, run_folder
from tracking.record.journal import Journal


def make_folder(root: Path, uri: str, name: str = "run", **info: object) -> Path:
    folder = run_folder.create(root, name)
    documents.write_json(folder / run_folder.RUN, run_folder.RunInfo(name, "tests", uri, **info))  # type: ignore[arg-type]
    documents.write_text(folder / run_folder.CONFIG, "seed: 1\n")
    return folder


def write_rows(folder: Path, steps: range, **values: float) -> None:
    journal = Journal(folder / run_folder.JOURNAL)
    for step in steps:
        journal.metrics({"train/loss": 1 / (step + 1), "train/samples": step * 32.0, **values}, step)
    journal.close()


def end(folder: Path, status: str = "finished") -> None:
    failure = run_folder.Failure("error", "boom") if status == "failed" else None
    documents.write_json(folder / run_folder.RESULT, run_folder.Result(status, failure=failure))


def wait_for(condition: object, timeout_sec: float = HANGS_SEC) -> None:
    """Wait for an event; the limit only ends what hangs, so that no test depends on the machine's speed."""
    deadline = time.monotonic() + timeout_sec
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)
