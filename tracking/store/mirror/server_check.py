"""Compare what a server holds of a run with the run's folder, since an acknowledgement alone proves nothing.

One request gets the params, the tags and the last row of every key, another the sizes of the files. A key with several
rows needs one more request, whose answer is a single row. All rows of a key are read back only if these answers differ
from the journal.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tracking.record import node_records, run_folder
from tracking.store.mirror import mlflow_run
from tracking.store.mirror.log_batches import log_batches
from tracking.store.server import PatientClient, TrackingRefused, TrackingUnavailable

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric
    from mlflow.entities import Run as MlflowRun
    from mlflow.store.artifact.artifact_repo import ArtifactRepository

Row = tuple[int, int, float]  # step, time in ms, value; MLflow calls a key's largest row the latest
MAX_NAMED = 3  # missing things that a message lists


@dataclass
class Content:
    """The journal's content for a server. Rows are kept as hashes, about 80 bytes each."""

    rows: dict[str, set[int]] = field(default_factory=dict)
    latest: dict[str, Row] = field(default_factory=dict)
    params: set[str] = field(default_factory=set)
    tags: set[str] = field(default_factory=set)


def expected_content(folder: Path, end_tags: Iterable[str], refused_keys: Collection[str]) -> Content:
    """The content of the journals and the tags of the end, without `refused_keys`: "params KEY" and "tags KEY"."""
    contents = Content()
    names = [run_folder.JOURNAL, *node_records.other_journals(folder)]
    for batch in (batch for name in names for batch in log_batches(folder / name, 0)):
        for key, value, time_ms, step in batch.metrics:
            row = (step, time_ms, as_stored(value))
            contents.rows.setdefault(key, set()).add(hash(row))
            contents.latest[key] = max(row, contents.latest.get(key, row))
        contents.params |= {key for key in batch.params if f"params {key}" not in refused_keys}
        contents.tags |= {key for key in batch.tags if f"tags {key}" not in refused_keys}
    contents.tags |= set(end_tags)
    return contents


def as_stored(value: float) -> float:
    """The value as MLflow's databases store it: NaN as 0 with a flag, infinity as the largest float, -0.0 as 0.0."""
    return 0.0 if math.isnan(value) else max(-sys.float_info.max, min(sys.float_info.max, value)) or 0.0


def missing_content(client: PatientClient, run_id: str, expected: Content, status: str) -> list[str]:
    """The expected content and status that the server does not have, as text."""
    run = client.ask(lambda mlflow: _run(mlflow, run_id))
    words = [_missing_rows(client, run, key, expected) for key in expected.rows]
    words += [f"the param {key}" for key in sorted(expected.params) if key not in run.data.params]
    words += [f"the tag {key}" for key in sorted(expected.tags) if key not in run.data.tags]
    words += [] if run.info.status == status else [f"the status {status}"]
    return [text for text in words if text]


def missing_files(client: PatientClient, store: ArtifactRepository, signatures: dict[str, list[int]]) -> list[str]:
    """The names of the files that the server's artifact store does not hold in the size of their signature."""
    stored = client.ask(lambda _: {file.path: file.file_size for file in store.list_artifacts()})
    # Some stores report no sizes.
    return [name for name, (size, _) in signatures.items() if stored.get(name, -1) not in (size, None)]


def list_missing(missing: list[str]) -> str:
    """The first MAX_NAMED missing things, and the number of further ones."""
    more = f" and {len(missing) - MAX_NAMED} more" if len(missing) > MAX_NAMED else ""
    return ", ".join(missing[:MAX_NAMED]) + more


def _run(mlflow: MlflowClient, run_id: str) -> MlflowRun:
    run = mlflow.get_run(run_id)
    mlflow_run.checked_id(run.info.run_id, f"the run {run_id}")
    return run


def _missing_rows(client: PatientClient, run: MlflowRun, key: str, expected: Content) -> str:
    rows, run_id = expected.rows[key], run.info.run_id
    latest = next((_row(metric) for metric in run.data._metric_objs if metric.key == key), None)
    if latest == expected.latest[key] and (len(rows) == 1 or _has_num_rows(client, run_id, key, len(rows))):
        return ""
    stored = set()
    if latest is not None:
        stored = client.ask(lambda mlflow: {hash(_row(metric)) for metric in mlflow.get_metric_history(run_id, key)})
    num_missing = len(rows - stored)
    return f"{num_missing:,} of {len(rows):,} rows of {key}" if num_missing else ""


def _row(metric: Metric) -> Row:
    return (metric.step, metric.timestamp, as_stored(metric.value))


def _has_num_rows(client: PatientClient, run_id: str, key: str, number: int) -> bool:
    """Whether a key has exactly `number` rows: then the page from row `number` on has one row, and is the last page.

    False for an older server without pages.
    """
    try:
        return client.ask(lambda mlflow: _page_holds_the_last(mlflow, run_id, key, number))
    except (TrackingRefused, TrackingUnavailable):
        return False


def _page_holds_the_last(mlflow: MlflowClient, run_id: str, key: str, number: int) -> bool:
    from mlflow.utils.search_utils import SearchUtils

    token = SearchUtils.create_page_token(number - 1).decode()
    # The client's own method reads all pages, so this calls the store's.
    page = mlflow._tracking_client.store.get_metric_history(run_id, key, max_results=1, page_token=token)
    return len(page) == 1 and not page.token
