"""The processes of load.py: they write journals, mirror them, or call MLflow for every row."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tracking.jobs.follow import MirrorThread
from tracking.record import Journal, documents, run_folder
from tracking.store.server import ENVIRONMENT

NUM_KEYS = 10
FORK = multiprocessing.get_context("fork")


def row_values(step: int) -> dict[str, float]:
    return {f"train/metric_{key}": step / (key + 1) for key in range(NUM_KEYS)}


def paced(rows_per_sec: float, seconds: float) -> Iterator[tuple[int, int]]:
    """Each step and its due time (wall clock, ms), yielded when it is due; ends after `seconds`."""
    started, wall_ms = time.monotonic(), time.time_ns() // 1_000_000
    for step in range(int(rows_per_sec * seconds / NUM_KEYS)):
        due_sec = step * NUM_KEYS / rows_per_sec
        time.sleep(max(0.0, started + due_sec - time.monotonic()))
        if time.monotonic() - started > seconds:
            return
        yield step, wall_ms + int(due_sec * 1000)


def write_journals(folders: list[Path], rows_per_sec: float, seconds: float) -> None:
    journals = [Journal(folder / run_folder.JOURNAL) for folder in folders]
    for step, _ in paced(rows_per_sec, seconds):
        for journal in journals:
            journal.metrics(row_values(step), step)
    for folder in folders:
        documents.write_json(folder / run_folder.RESULT, run_folder.Result("finished"))


def mirror_run(folder: Path, uri: str) -> None:
    thread = MirrorThread(folder, uri).start()
    while run_folder.read_result(folder) is None:
        time.sleep(0.1)
    thread.close(wait_sec=600)


def call_run(run_id: str, uri: str, rows_per_sec: float, seconds: float, name: str) -> None:
    for variable in ENVIRONMENT:  # These settings belong to the mirror.
        os.environ.pop(variable)
    if name == "async, buffered":
        os.environ["MLFLOW_ASYNC_LOGGING_BUFFERING_SECONDS"] = "1"
    import mlflow

    client = mlflow.MlflowClient(uri)
    for step, due_ms in paced(rows_per_sec, seconds):
        for key, value in row_values(step).items():
            client.log_metric(run_id, key, value, due_ms, step, synchronous=name == "plain")
    if name != "plain":
        mlflow.flush_async_logging()


@contextmanager
def forked(calls: list[tuple[Callable[..., None], tuple[Any, ...]]], patience_sec: float = 600) -> Iterator[list[int]]:
    """The ids of processes that make these calls. Those still running `patience_sec` after the block are killed."""
    children = [FORK.Process(target=function, args=arguments) for function, arguments in calls]
    for child in children:
        child.start()
    yield [child.pid for child in children if child.pid]
    deadline = time.monotonic() + patience_sec
    for child in children:
        child.join(max(0.0, deadline - time.monotonic()))
        child.kill()
        child.join()
