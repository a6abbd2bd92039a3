"""The rows of a journal and of a server's database, in one form."""

from __future__ import annotations

import json
import math
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from tests.support.commands import HANGS_SEC
from tracking.record import run_folder
from tracking.store.mirror.mirror import UID_TAG

Row = tuple[str, float, int, int, bool]  # key, value, timestamp in ms, step, whether it is NaN


class Store(Protocol):
    """What has a SQLite database of MLflow's: a server, or a run's own."""

    database: Path


def as_stored(value: float) -> float:
    """MLflow keeps NaN as a flag beside 0, infinity as the largest float (sqlalchemy_store.sanitize_metric_value)."""
    return 0.0 if math.isnan(value) else max(-sys.float_info.max, min(sys.float_info.max, value))


def records(folder: Path) -> Iterator[dict[str, Any]]:
    """The records of a journal, read without the code under test: every one that is whole counts."""
    for part in re.split(rb'(?=\{"kind": ")', (folder / run_folder.JOURNAL).read_bytes()):
        with suppress(ValueError):  # torn
            yield json.loads(part.partition(b"\n")[0])


def expected_rows(folder: Path) -> list[Row]:
    """The metric rows of a journal, each once."""
    rows = set()
    for record in records(folder):
        if record["kind"] == "metrics":
            for key, value in record.get("values", {}).items():
                rows.add((key, as_stored(value), record["time_ms"], record["step"], math.isnan(value)))
    return sorted(rows)


def query(server: Store, sql: str, *values: object) -> list[tuple]:
    with sqlite3.connect(f"file:{server.database}?mode=ro", uri=True, timeout=HANGS_SEC) as database:
        rows = database.execute(sql, values).fetchall()
    database.close()
    return rows


def stored_rows(server: Store, run_id: str | None) -> list[Row]:
    rows = query(server, "select key, value, timestamp, step, is_nan from metrics where run_uuid = ?", run_id)
    return sorted((*row[:4], bool(row[4])) for row in rows)


def tags_of(server: Store, run_id: str | None) -> dict[str, str]:
    return dict(query(server, "select key, value from tags where run_uuid = ?", run_id))


def status_of(server: Store, run_id: str | None) -> str:
    [(status,)] = query(server, "select status from runs where run_uuid = ?", run_id)
    return status


def runs_with_uid(server: Store, uid: str) -> list[tuple[str, str]]:
    """Id and life-cycle stage of every run that was made for a folder."""
    sql = "select runs.run_uuid, lifecycle_stage from runs join tags using (run_uuid) where key = ? and value = ?"
    return query(server, sql, UID_TAG, uid)
