"""Read a line of MLPerf's log, in any of its three formats.

    :::MLLOG {"namespace": "", "time_ms": 1592512000123, "event_type": "INTERVAL_START", "key": "run_start", ...}
    :::MLL 1558639250.061 run_start: {"value": null, "metadata": {"file": "train.py", "lineno": 12}}
    :::MLPv0.5.0 ssd 1541710501.143265 (train.py:12) eval_accuracy: {"epoch": 5, "value": 0.04}

The first is from v0.6 and later (github.com/mlcommons/logging, mlperf_logging.mllog), the second from v0.6, the third
from v0.5. Text before the mark, such as a launcher's rank, is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from conf.target import Target
from tracking.measure.programs import checked_values

MLLOG = ":::MLLOG "
MLL = re.compile(r":::MLL (\d+(?:\.\d+)?) ([\w.]+): *(\{.*)")
MLP = re.compile(r":::MLP(v0\.5\.\d+) (\S+) (\d+(?:\.\d+)?) \([^)]*\) ([\w.]+)(?:: *(.*))?")
MODEL_KEYS = ("samples_count", "step_num", "epoch_num")  # keys that identify the evaluated model
SUBMISSION = "submission_"
# From names of v0.5 to later ones.
RENAMED = {"preproc_num_train_examples": "train_samples"}


@dataclass(frozen=True)
class Entry:
    """The content of a line. `value` is as in the line; `time_ms` is wall time in UTC, with its fraction.

    `round` is v0.5 or v0.6 if the line's format shows it. A line of v0.5 also names its `benchmark`.
    """

    key: str
    value: Any
    metadata: Mapping[str, Any] = field(default_factory=dict)
    time_ms: float = 0.0
    round: str = field(default="", compare=False)
    benchmark: str = field(default="", compare=False)


def parse_entry(line: str) -> Entry | None:
    """The entry of a line; None for any other line, and for a torn one."""
    if ":::ML" not in line:
        return None
    try:
        entry = _mllog(line) or _mll(line) or _mlp(line)
    except (ValueError, TypeError, KeyError):
        return None
    if entry is None or not isinstance(entry.key, str):
        return None
    # Some submissions added their submission_* lines afterwards, without a time.
    return entry if entry.time_ms or entry.key.startswith(SUBMISSION) else None


def is_torn(line: str) -> bool:
    """Whether a line has the mark of MLPerf's log but is unreadable."""
    return ":::ML" in line and parse_entry(line) is None


def _mllog(line: str) -> Entry | None:
    _, mark, content = line.partition(MLLOG)
    if not mark:
        return None
    fields = checked_values.mapping(checked_values.parse_leading_json(content), "line")
    time_ms = checked_values.time_ms(fields["time_ms"])
    return Entry(fields["key"], fields.get("value"), _mapping(fields.get("metadata")), time_ms)


def _mll(line: str) -> Entry | None:
    match = MLL.search(line)
    if match is None:
        return None
    fields = checked_values.mapping(checked_values.parse_leading_json(match[3]), "line")
    value = fields.get("value")
    if match[2] == "eval_accuracy":  # NVIDIA's Mask R-CNN has a mapping in a mapping, its Transformer a text
        value = value["accuracy"] if isinstance(value, dict) and value.keys() == {"accuracy"} else value
        value = float(value) if isinstance(value, str) else value
    time_ms = checked_values.time_ms(1e3 * float(match[1]))
    return Entry(match[2], value, _mapping(fields.get("metadata")), time_ms, "v0.6")


def _mlp(line: str) -> Entry | None:
    match = MLP.search(line)
    if match is None:
        return None
    key, value, metadata = match[4], _value(match[5]), {}
    if key == "eval_accuracy" and isinstance(value, dict):
        metadata = {"epoch_num": value.get("epoch")}
        value = value.get("value")
    elif key == "run_stop" and isinstance(value, dict) and "success" in value:
        metadata, value = {"status": "success" if value["success"] else "aborted"}, None
    elif key == "train_epoch":
        metadata, value = {"epoch_num": value}, None
    return Entry(
        RENAMED.get(key, key), value, metadata, checked_values.time_ms(1e3 * float(match[3])), "v0.5", match[2]
    )


def _value(text: str | None) -> Any:
    try:
        return None if text is None else checked_values.parse_json(text)
    except ValueError:
        return text


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def evaluated_model(entry: Entry) -> Any:
    """The number that identifies the evaluated model, in any unit; None if the log gives none of MODEL_KEYS."""
    return next((entry.metadata[key] for key in MODEL_KEYS if entry.metadata.get(key) is not None), None)


def metric_of(entry: Entry) -> str:
    """The log's name of an evaluation's metric; "" without one."""
    return checked_values.text(entry.metadata.get("metric"))


class MetricJoiner:
    """Joins the metrics of one evaluation that a log gives in separate lines, such as Stable Diffusion's FID and CLIP.

    It holds them back until the log has given all targets' metrics of a model.
    """

    def __init__(self, targets: Mapping[str, Target]) -> None:
        self._targets = targets.keys()
        self._metrics_by_model: dict[str, dict[str, float]] = {}

    def join(self, entry: Entry, metrics: Mapping[str, float]) -> dict[str, float]:
        """The evaluation's metrics once all targets' metrics are known; {} until then."""
        if metric_of(entry) not in self._targets or not metrics:
            return dict(metrics)
        model = str(evaluated_model(entry))
        metrics_so_far = self._metrics_by_model.setdefault(model, {})
        metrics_so_far |= metrics
        return self._metrics_by_model.pop(model) if self._targets <= metrics_so_far.keys() else {}
