"""The journal as requests to MLflow's log_batch, each as large as allowed, without values that MLflow cannot hold."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from tracking.record import Record, journal, typed_json

# MLflow's limits (mlflow/utils/validation.py). MAX_BYTES is below MLflow's 1 MB, since our count is an estimate.
MAX_METRICS, MAX_PARAMS, MAX_TAGS, MAX_ENTITIES, MAX_BYTES = 1000, 100, 100, 1000, 900_000
MAX_PARAM_CHARS, MAX_TAG_CHARS = 6000, 8000
RUN_START = "run_start"
# Our tags for which MLflow's pages have a column, with MLflow's names.
MLFLOW_NAMES = {"git.commit": "mlflow.source.git.commit", "script": "mlflow.source.name"}
# The clock's start in wall time. MLflow has no events, and its own start time of a run is that of the command.
RUN_START_TAG = "timetrial.run_start_ms"


@dataclass
class LogBatch:
    """The content of a request to log_batch, and the journal's offset after its acknowledgement."""

    offset: int  # bytes of the journal
    time_ms: int = 0  # the time of its latest record
    metrics: list[tuple[str, float, int, int]] = field(default_factory=list)  # key, value, time in ms, step
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)  # messages on values that MLflow cannot hold
    num_bytes: int = 0
    earlier_params: dict[str, str] = field(default_factory=dict)  # the params of earlier batches

    def __len__(self) -> int:
        return len(self.metrics) + len(self.params) + len(self.tags)

    def add(self, kind: str, key: str, value: Any, time_ms: int, step: int) -> bool:
        """Add a value; return False if it does not fit. Raises ValueError for a value that MLflow cannot hold."""
        _refuse_bad_key(kind, key)
        if kind == "metrics":
            return self._add_metric(key, value, time_ms, step)
        if kind == "params":
            return self._add_text(self.params, MAX_PARAMS, key, shortened(str(value), MAX_PARAM_CHARS))
        return self._add_text(self.tags, MAX_TAGS, key, shortened(str(value), MAX_TAG_CHARS))

    def _add_metric(self, key: str, value: Any, time_ms: int, step: int) -> bool:
        if not isinstance(value, bool) and not typed_json.is_number(value):
            raise ValueError(f"metrics: the value of {key!r} is not a number: {repr(value)[:60]}")
        if not -(2**63) <= step < 2**63:
            raise ValueError(f"metrics: {key!r} has step {step}, which is not a 64-bit number")
        # The request's JSON has a line for every field. Non-ASCII characters of a key are escaped, six bytes each.
        if not self._reserve(160 + len(key) * (1 if key.isascii() else 6), len(self.metrics) < MAX_METRICS):
            return False
        self.metrics.append((key, float(value), time_ms, step))
        return True

    def _add_text(self, texts: dict[str, str], limit: int, key: str, text: str) -> bool:
        earlier = (self.earlier_params | texts).get(key, text) if texts is self.params else text
        if earlier != text:
            raise ValueError(f"params: {key!r} is {text!r} after {earlier!r}; MLflow's params cannot change")
        if not self._reserve(60 + len(json.dumps(key)) + len(json.dumps(text)), len(texts) < limit):
            return False
        texts[key] = text
        return True

    def _reserve(self, num_bytes: int, below_limit: bool) -> bool:
        if not below_limit or len(self) >= MAX_ENTITIES or self.num_bytes + num_bytes > MAX_BYTES:
            return False
        self.num_bytes += num_bytes
        return True


def log_batches(path: Path, offset: int, params: Mapping[str, str] | None = None) -> Iterator[LogBatch]:
    """The journal from byte `offset` on, in requests as large as MLflow allows.

    `params` are those that MLflow has from before the offset. Another value of one of them would be refused with its
    whole request.

    A record may be split over two batches. The first then carries the offset before the record; after a crash in
    between, its part is sent again, which changes nothing.
    """
    earlier_params = dict(params or {})
    batch, sent_offset = LogBatch(offset, earlier_params=earlier_params), offset
    for record, end in journal.read(path, offset):
        if record.key == RUN_START:
            record = _as_tag(record, path)
        if record.kind in ("metrics", "params", "tags"):
            for key, value in _with_mlflows_names(record).items():
                try:
                    if not batch.add(record.kind, key, value, record.time_ms, record.step):
                        yield batch
                        sent_offset = batch.offset
                        earlier_params |= batch.params
                        batch = LogBatch(batch.offset, earlier_params=earlier_params)
                        fits = batch.add(record.kind, key, value, record.time_ms, record.step)
                        assert fits, f"{key}: too large for an empty batch"
                except ValueError as error:  # it stays in the journal; the rest of the run is sent
                    batch.refused.append(str(error))
        batch.offset, batch.time_ms = end, max(batch.time_ms, record.time_ms)
    if batch.offset > sent_offset:
        yield batch


def _as_tag(run_start: Record, path: Path) -> Record:
    """The start of the clock as a tag; the first start, if a resumed run's journal has several."""
    first = next((record for record, _ in journal.read(path) if record.key == RUN_START), run_start)
    return replace(run_start, kind="tags", values={RUN_START_TAG: first.time_ms})


def _with_mlflows_names(record: Record) -> dict[str, Any]:
    """A record's values; tags that MLflow calls otherwise are included under both names."""
    if record.kind != "tags":
        return record.values
    return record.values | {name: record.values[key] for key, name in MLFLOW_NAMES.items() if key in record.values}


@lru_cache(maxsize=4096)
def _refuse_bad_key(kind: str, key: str) -> None:
    if not journal.is_key(key):
        raise ValueError(f"{kind}: MLflow does not accept the key {key!r}: {journal.KEY_RULE}")


def shortened(text: str, max_chars: int) -> str:
    """The text, cut to `max_chars` characters with an ellipsis at its end if it is longer."""
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"
