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
from contextlib import contextmanager
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
# A record starts like this. Text within a JSON string cannot, since its quotes are escaped.
RECORD_START = re.compile(r'\{"kind": "')

LINK_TAG = "script.mlflow_run"  # tag: the MLflow run that the script itself made of the same training
NOTE_TAG = "mlflow.note.content"  # tag of a run's description, which MLflow shows
UNKNOWN_TAG = "unknown_figures"  # tag: prefixes of keys whose figures are unknown, though the run may have their curves
EDGE_BYTES = 262_144  # at either end of a journal, enough for its first and its last records
MAX_LINE_BYTES = 67_108_864  # An untrusted file may be one endless line.
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
    """Appends records without their secrets to a journal file, as several processes on a machine may do at once."""

    def __init__(self, path: Path) -> None:
        # One write() for each record to a descriptor opened for appending: the kernel keeps lines of several
        # processes whole, and a killed process leaves at most its own last line torn.
        self._descriptor = files.descriptor(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            os.write(self._descriptor, b"\n")  # end a line torn by a crash, so that only that line is lost

    def event(self, key: str, value: Scalar = None, **metadata: Any) -> Record:
        values = {name: redacted(inner) for name, inner in metadata.items()}
        return self._append("event", key=key, value=redacted(value), values=values)

    def metrics(self, values: Mapping[str, float], step: int = 0, time_ms: int | None = None) -> Record:
        """Append metric values at a global step, at the time `time_ms` (default: now). NaN and infinity are kept."""
        return self._append("metrics", time_ms, step=step, values=dict(values))

    def params(self, values: Mapping[str, Scalar]) -> Record:
        return self._append("params", values=redacted(dict(values)))

    def tags(self, values: Mapping[str, Scalar], time_ms: int | None = None) -> Record:
        return self._append("tags", time_ms, values=redacted(dict(values)))

    def close(self) -> None:
        os.close(self._descriptor)

    def append(self, record: Record) -> Record:
        """Append a record from another source with its own times."""
        return self._write(replace(record, value=redacted(record.value), values=redacted(record.values)))

    def _append(self, kind: str, time_ms: int | None = None, **fields: Any) -> Record:
        now_ms = time.time_ns() // 1_000_000
        return self._write(Record(kind, now_ms if time_ms is None else time_ms, time.monotonic(), **fields))

    def _write(self, record: Record) -> Record:
        content = {name: value for name, value in vars(record).items() if value not in (None, {})}
        if not record.key:
            del content["key"]
        line = (json.dumps(content) + "\n").encode()
        if os.write(self._descriptor, line) < len(line):  # a disk that becomes full takes a part
            line = b"\n" + line
            if os.write(self._descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return record


@contextmanager
def part_of_start(log: Journal | None, name: str) -> Iterator[None]:
    """Journal the begin and the end of a part of a run's start (tracking.base.time_parts) around the block.

    The events are `name`_start and `name`_stop. A part that fails has no end. Without a journal nothing is done.
    """
    if log:
        log.event(f"{name}_start")
    yield
    if log:
        log.event(f"{name}_stop")


def is_key(text: str) -> bool:
    """Whether MLflow accepts the text as the key of a metric, a param or a tag (see KEY_RULE)."""
    shortest = posixpath.normpath(text) == text and text != "." and not text.startswith(("/", ".."))
    return len(text) <= MAX_KEY_CHARS and bool(KEY.fullmatch(text)) and shortest


def as_key(text: str, room: int = 0) -> str:
    """A key made from a text: `_` replaces each sequence of characters that MLflow refuses, and the path gets its
    shortest form. `room` shortens the longest key by so many characters."""
    parts = [re.sub(r"[^\w.\- ]+", "_", part) for part in text.split("/")]
    parts = ["_" if part in (".", "..") else part for part in parts if part]
    key = "/".join(parts)[: MAX_KEY_CHARS - room].rstrip("/")
    return key or "_"


def events(path: Path) -> list[Record]:
    """The events of a journal, in the order of writing."""
    return [record for record, _ in read(path) if record.kind == "event"]


def read(path: Path, offset: int = 0) -> Iterator[tuple[Record, int]]:
    """Yield the complete records from byte `offset` on, each with the offset of its end.

    A last line without a newline is still being written, and left for the next call. Torn parts of lines (by a crash or
    a full disk) and malformed records are skipped alone.
    """
    if not files.exists(path):
        return
    with files.opened(path, "rb") as file, files.errors_with_path(path):
        file.seek(offset)
        while line := file.readline(MAX_LINE_BYTES):
            if not line.endswith(b"\n"):
                return
            for record, end in _records_in(line):
                yield record, offset + end
            offset += len(line)


def append_at_end(path: Path, values: Mapping[str, float]) -> None:
    """Append metrics dated to the last record: a dead run may be ended days later, on another machine.

    Without a record there is no date, and nothing is appended. Raises OSError.
    """
    last = None
    for record, _ in read(path):
        last = record
    if last is not None:
        log = Journal(path)
        log.append(Record("metrics", last.time_ms, last.clock_sec, values=dict(values)))
        log.close()


MAX_RECORDS_BEFORE_START = 16  # most records before a run's start
CLOCKS_AGREE_SEC = 1.0  # largest difference between the clocks of one machine that needs no reason


def span(path: Path) -> tuple[float, float]:
    """When a run started (wall clock), and the time from there to its last record, both in seconds; 0 without records.

    Records before the start may come from another machine, and precede a wait in a queue. A run that was resumed on
    another machine, or after a reboot, is timed by the wall clock. Reads only both ends of the file, unless the clocks
    disagree. A missing file gives 0. Raises OSError.
    """
    if not files.exists(path):
        return 0.0, 0.0
    records: list[Record] = []
    is_resumed = False
    for record, end in read(path):
        is_resumed |= record.key == "resume"
        starts = record.key == "init_start" and len(records) <= MAX_RECORDS_BEFORE_START and not is_resumed
        records = [record] if starts else [*records, record]
        if end > EDGE_BYTES:
            records += [record for record, _ in read(path, max(end, path.lstat().st_size - EDGE_BYTES))]
            break
    if not records:
        return 0.0, 0.0
    first, last = (pick(records, key=lambda record: record.clock_sec) for pick in (min, max))
    sec = last.clock_sec - first.clock_sec
    times = [record.time_ms / 1e3 for record in records]
    wall_sec = max(times) - min(times)
    if abs(sec - wall_sec) > CLOCKS_AGREE_SEC and any(event.key == "resume" for event in events(path)):
        return min(times), wall_sec
    return first.time_ms / 1e3, sec


def span_sec(path: Path) -> float:
    """Seconds from a run's start to its last record (see `span`). Raises OSError."""
    return span(path)[1]


def _records_in(line: bytes) -> Iterator[tuple[Record, int]]:
    """The records of a line with the positions of their ends: one record, unless a torn one precedes it."""
    try:
        yield _record(json.loads(line)), len(line)
    except (ValueError, TypeError, RecursionError):
        # Another writer may have appended a whole record after the torn one.
        text = line.decode("latin-1")  # one character per byte
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
    """The record of a JSON object. Raises ValueError and TypeError if a field has the wrong type."""
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
        raise ValueError("a field of the record has the wrong type")
    return record
