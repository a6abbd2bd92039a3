"""The journal of a run: one JSON object a line, appended by the worker and the launcher, read by the mirror.

Kinds of record, each with `time_ms` (wall clock, UTC) and `clock_sec` (monotonic, comparable on one machine):

    {"kind": "event", "key": "run_start", "value": null, "metadata": {}}    keys: MLCommons mllog constants
    {"kind": "metrics", "step": 50, "values": {"train/loss": 0.31}}
    {"kind": "params", "values": {"seed": 1}}
    {"kind": "tags", "values": {"env.driver": "580.159.04"}}
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conf.secrets import redacted

Scalar = str | int | float | bool | None


@dataclass(frozen=True)
class Record:
    kind: str  # event | metrics | params | tags
    time_ms: int
    clock_sec: float
    key: str = ""  # of an event
    value: Scalar = None  # of an event
    step: int = 0  # of metrics
    values: dict[str, Any] = field(default_factory=dict)  # of metrics, params, tags; the metadata of an event


class Journal:
    """Appends records to a journal file, without the secrets in their texts.

    Several processes on one machine may append to the same file.
    """

    def __init__(self, path: Path) -> None:
        # One write() a record on a descriptor opened for appending: the kernel keeps the lines of several
        # processes whole, and a process killed in between leaves at most its own last line torn.
        self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            os.write(self._descriptor, b"\n")  # close a line torn by a crash, so that only that line is lost

    def event(self, key: str, value: Scalar = None, **metadata: Any) -> Record:
        return self._append("event", key=key, value=redacted(value), values=redacted(metadata))

    def metrics(self, values: Mapping[str, float], step: int = 0) -> Record:
        """Append metric values at a global step. NaN and infinity are kept, as MLflow keeps them."""
        return self._append("metrics", step=step, values=dict(values))

    def params(self, values: Mapping[str, Scalar]) -> Record:
        return self._append("params", values=redacted(dict(values)))

    def tags(self, values: Mapping[str, Scalar]) -> Record:
        return self._append("tags", values=redacted(dict(values)))

    def close(self) -> None:
        os.close(self._descriptor)

    def _append(self, kind: str, **fields: Any) -> Record:
        record = Record(kind, time.time_ns() // 1_000_000, time.monotonic(), **fields)
        content = {name: value for name, value in vars(record).items() if value not in (None, {})}
        if not record.key:
            del content["key"]
        os.write(self._descriptor, (json.dumps(content) + "\n").encode())
        return record


def events(path: Path) -> list[Record]:
    """The events of a journal, in the order they were written."""
    return [record for record, _ in read(path) if record.kind == "event"]


def read(path: Path, offset: int = 0) -> Iterator[tuple[Record, int]]:
    """Yield the complete records from byte `offset` on, each with the offset behind it.

    A last line without its newline is still being written and is left for the next call; a complete line that is
    no record (torn by a crash, then closed by the next writer) is passed over.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            try:
                yield Record(**json.loads(line)), offset
            except (ValueError, TypeError):
                continue
