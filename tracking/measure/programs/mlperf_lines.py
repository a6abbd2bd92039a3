"""A line of MLPerf's log, in each of its three formats.

    :::MLLOG {"namespace": "", "time_ms": 1592512000123, "event_type": "INTERVAL_START", "key": "run_start", ...}
    :::MLL 1558639250.061 run_start: {"value": null, "metadata": {"file": "train.py", "lineno": 12}}
    :::MLPv0.5.0 ssd 1541710501.143265 (train.py:12) eval_accuracy: {"epoch": 5, "value": 0.04}

The first is of v0.6 and later (github.com/mlcommons/logging, mlperf_logging.mllog), the second of v0.6, the third of
v0.5. Whatever stands before the mark, such as the rank that a launcher puts there, is passed over.
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
PLACES = ("samples_count", "step_num", "epoch_num")  # of what model an evaluation is
SUBMISSION = "submission_"
# Names of v0.5 and what they became.
RENAMED = {"preproc_num_train_examples": "train_samples"}


@dataclass(frozen=True)
class Entry:
    """What a line says. `value` is as the line has it; `time_ms` is the wall clock's, UTC, with its fraction.

    `round` is v0.5 or v0.6 where the line's format is that round's; a line of v0.5 names its `benchmark`, too.
    """

    key: str
    value: Any
    metadata: Mapping[str, Any] = field(default_factory=dict)
    time_ms: float = 0.0
    round: str = field(default="", compare=False)
    benchmark: str = field(default="", compare=False)


def entry_in(line: str) -> Entry | None:
    """The entry of a line; None where there is none, or where it was torn."""
    if ":::ML" not in line:
        return None
    try:
        entry = _mllog(line) or _mll(line) or _mlp(line)
    except (ValueError, TypeError, KeyError):
        return None
    if entry is None or not isinstance(entry.key, str):
        return None
    # Some submissions have added who submits what afterwards, at no time.
    return entry if entry.time_ms or entry.key.startswith(SUBMISSION) else None


def is_torn(line: str) -> bool:
    """Whether a line has the mark of MLPerf's log and cannot be read."""
    return ":::ML" in line and entry_in(line) is None


def _mllog(line: str) -> Entry | None:
    _, mark, content = line.partition(MLLOG)
    if not mark:
        return None
    read = checked_values.mapping(checked_values.decoded_start(content), "line")
    return Entry(
        read["key"], read.get("value"), _mapping(read.get("metadata")), checked_values.time_ms(read["time_ms"])
    )


def _mll(line: str) -> Entry | None:
    match = MLL.search(line)
    if match is None:
        return None
    read = checked_values.mapping(checked_values.decoded_start(match[3]), "line")
    value = read.get("value")
    if match[2] == "eval_accuracy":  # NVIDIA's Mask R-CNN has a mapping in a mapping, its Transformer a text
        value = value["accuracy"] if isinstance(value, dict) and value.keys() == {"accuracy"} else value
        value = float(value) if isinstance(value, str) else value
    return Entry(match[2], value, _mapping(read.get("metadata")), checked_values.time_ms(1e3 * float(match[1])), "v0.6")


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
        return None if text is None else checked_values.decoded(text)
    except ValueError:
        return text


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def place(entry: Entry) -> Any:
    """The number of the model that was evaluated, in whatever unit; None where the log says none."""
    return next((entry.metadata[key] for key in PLACES if entry.metadata.get(key) is not None), None)


def metric_of(entry: Entry) -> str:
    """What the log calls the metric of an evaluation; empty where it does not say it."""
    return checked_values.text(entry.metadata.get("metric"))


class Joined:
    """Puts metrics of one evaluation together that a log says in lines of their own.

    Such are Stable Diffusion's FID and CLIP. It waits until all of the targets' metrics of a model are said.
    """

    def __init__(self, targets: Mapping[str, Target]) -> None:
        self._targets = targets.keys()
        self._said: dict[str, dict[str, float]] = {}

    def whole(self, entry: Entry, metrics: Mapping[str, float]) -> dict[str, float]:
        """The evaluation's metrics, once all are said that the targets ask for; empty until then."""
        if metric_of(entry) not in self._targets or not metrics:
            return dict(metrics)
        said = self._said.setdefault(str(place(entry)), {})
        said |= metrics
        return self._said.pop(str(place(entry))) if self._targets <= said.keys() else {}
