"""The journal of a run: one JSON object a line, appended by the worker and the launcher, read by the mirror.

Kinds of record, each with `time_ms` (wall clock, UTC) and `clock_sec` (monotonic, comparable on one machine):

    {"kind": "event", "key": "run_start", "value": null, "metadata": {}}    keys: MLCommons mllog constants
    {"kind": "metrics", "step": 50, "values": {"train/loss": 0.31}}
    {"kind": "params", "values": {"seed": 1}}
    {"kind": "tags", "values": {"env.driver": "580.159.04"}}
"""

from __future__ import annotations

import errno
import json
import math
import os
import posixpath
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tracking.base.secrets import redacted
from tracking.record import files
from tracking.record.typed_json import is_number, is_time

MAX_KEY_CHARS = 250  # MLflow's limit for a key, as is the pattern (mlflow/utils/validation.py)
KEY = re.compile(r"[/\w.\- ]+")
KEY_RULE = f"up to {MAX_KEY_CHARS} letters, digits, '_', '-', '.', ' ' and '/', and a path in its shortest form"
Scalar = str | int | float | bool | None
# A record starts like this, and nothing within a string does: there its quotes are escaped.
RECORD_START = re.compile(r'\{"kind": "')

LINK_TAG = "script.mlflow_run"  # the tag of the run in MLflow that a script has of the same training itself
NOTE_TAG = "mlflow.note.content"  # the tag of a run's description, by the name under which MLflow shows it
EDGE_BYTES = 262_144  # at either end of a journal, where its first and its last record stand
MOST_LINE_BYTES = 67_108_864  # A stranger's file may be one line without end.
KINDS = ("event", "metrics", "params", "tags")


@dataclass(frozen=True)
class Record:
    kind: str  # event | metrics | params | tags
    time_ms: int
    clock_sec: float
    key: str = ""  # the event's name
    value: Scalar = None  # the event's value
    step: int = 0  # the global step of metrics
    # Metrics, params or tags by their keys; the metadata of an event.
    values: dict[str, Any] = field(default_factory=dict)


class Journal:
    """Appends records to a journal file, without the secrets in their texts.

    Several processes on one machine may append to the same file.
    """

    def __init__(self, path: Path) -> None:
        # One write() a record on a descriptor opened for appending: the kernel keeps the lines of several
        # processes whole, and a process killed in between leaves at most its own last line torn.
        self._descriptor = files.descriptor(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            os.write(self._descriptor, b"\n")  # close a line torn by a crash, so that only that line is lost

    def event(self, key: str, value: Scalar = None, **metadata: Any) -> Record:
        values = {name: redacted(inner) for name, inner in metadata.items()}
        return self._append("event", key=key, value=redacted(value), values=values)

    def metrics(self, values: Mapping[str, float], step: int = 0, time_ms: int | None = None) -> Record:
        """Append metric values at a global step, of now or of `time_ms`. NaN and infinity are kept."""
        return self._append("metrics", time_ms, step=step, values=dict(values))

    def params(self, values: Mapping[str, Scalar]) -> Record:
        return self._append("params", values=redacted(dict(values)))

    def tags(self, values: Mapping[str, Scalar], time_ms: int | None = None) -> Record:
        return self._append("tags", time_ms, values=redacted(dict(values)))

    def close(self) -> None:
        os.close(self._descriptor)

    def append(self, record: Record) -> Record:
        """Append a record of somebody else's, with the times that it has."""
        return self._write(replace(record, value=redacted(record.value), values=redacted(record.values)))

    def _append(self, kind: str, time_ms: int | None = None, **fields: Any) -> Record:
        now_ms = time.time_ns() // 1_000_000
        return self._write(Record(kind, now_ms if time_ms is None else time_ms, time.monotonic(), **fields))

    def _write(self, record: Record) -> Record:
        content = {name: value for name, value in vars(record).items() if value not in (None, {})}
        if not record.key:
            del content["key"]
        line = (json.dumps(content) + "\n").encode()
        if os.write(self._descriptor, line) < len(line):  # a disk that is just becoming full takes a part
            line = b"\n" + line
            if os.write(self._descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return record


def is_key(text: str) -> bool:
    """Whether MLflow takes it as the key of a metric, a param or a tag (see KEY_RULE)."""
    shortest = posixpath.normpath(text) == text and text != "." and not text.startswith(("/", ".."))
    return len(text) <= MAX_KEY_CHARS and bool(KEY.fullmatch(text)) and shortest


def as_key(text: str, room: int = 0) -> str:
    """The key nearest to a text: `_` in place of each stretch of characters that MLflow does not take, and the path in
    its shortest form; `room` characters shorter than a key may be."""
    parts = [re.sub(r"[^\w.\- ]+", "_", part) for part in text.split("/")]
    parts = ["_" if part in (".", "..") else part for part in parts if part]
    key = "/".join(parts)[: MAX_KEY_CHARS - room].rstrip("/")
    return key or "_"


def events(path: Path) -> list[Record]:
    """The events of a journal, in the order they were written."""
    return [record for record, _ in read(path) if record.kind == "event"]


def read(path: Path, offset: int = 0) -> Iterator[tuple[Record, int]]:
    """Yield the complete records from byte `offset` on, each with the offset behind it.

    A last line without its newline is still being written and is left for the next call. What a crash or a full disk
    tore is passed over, and nothing else with it; so is what is no record of ours, from a stranger's journal.
    """
    if not files.exists(path):
        return
    with files.opened(path, "rb") as file:
        file.seek(offset)
        while line := file.readline(MOST_LINE_BYTES):
            if not line.endswith(b"\n"):
                return
            for record, end in _records_in(line):
                yield record, offset + end
            offset += len(line)


MOST_BEFORE = 16  # records that are written before a run's start


def span(path: Path) -> tuple[float, float]:
    """When a run started, in seconds of the wall clock, and the time from there to its last record: start, training,
    evaluations and end. Both are 0 without records.

    What was written before the start may be of another machine, and waited in a queue. Reads both ends of the file
    alone; of one that is missing it is 0, too. Raises OSError.
    """
    if not files.exists(path):
        return 0.0, 0.0
    records: list[Record] = []
    for record, end in read(path):
        starts = record.kind == "event" and record.key == "init_start" and len(records) <= MOST_BEFORE
        records = [record] if starts else [*records, record]
        if end > EDGE_BYTES:
            records += [record for record, _ in read(path, max(end, path.lstat().st_size - EDGE_BYTES))]
            break
    if not records:
        return 0.0, 0.0
    first, last = (pick(records, key=lambda record: record.clock_sec) for pick in (min, max))
    return first.time_ms / 1e3, last.clock_sec - first.clock_sec


def span_sec(path: Path) -> float:
    """The time from a run's start to its last record (`span`). Raises OSError."""
    return span(path)[1]


def _records_in(line: bytes) -> Iterator[tuple[Record, int]]:
    """The records of a line, each with the position behind it: one, unless a writer was cut off within its record."""
    try:
        yield _record(json.loads(line)), len(line)
    except (ValueError, TypeError, RecursionError):
        # Another writer may have gone on where the torn record ends: its own is whole.
        text = line.decode("latin-1")  # one character for every byte
        position = 0
        while start := RECORD_START.search(text, position):
            try:
                content, position = json.JSONDecoder().raw_decode(text, start.start())
                record = _record(content)
            except (ValueError, TypeError, RecursionError):
                position = start.end()
                continue
            if text[position:] == "\n":
                position += 1
            yield record, position


def _record(content: Any) -> Record:
    """A record whose fields are what they are declared to be. Raises ValueError and TypeError."""
    record = Record(**content)
    if (
        record.kind not in KINDS
        or not is_time(record.time_ms)
        or not is_number(record.clock_sec)
        or not math.isfinite(record.clock_sec)
        or type(record.step) is not int
        or not isinstance(record.key, str)
        or not isinstance(record.value, str | int | float | None)
        or not isinstance(record.values, dict)
    ):
        raise ValueError("a field of the record is none of ours")
    return record
