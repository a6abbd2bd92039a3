"""Read a line that a program writes into the file `$TIMETRIAL_JOURNAL`: a line of our journal with fewer fields.

    {"kind": "event", "key": "eval_accuracy", "values": {"metrics": {"accuracy": 0.97}, "epoch_num": 3}}
    {"kind": "metrics", "step": 50, "values": {"train/loss": 0.31}}

`clock_sec` (time.monotonic) and `time_ms` are optional; they default to the time at which the line was read.
"""

from __future__ import annotations

from typing import Any

from tracking.base import quantities
from tracking.measure.programs import checked_values
from tracking.record import Record, journal
from tracking.request.name_checks import is_reserved

INTERVALS = ("init", "warmup", "epoch", "eval", "checkpoint", "run")
EVENTS = {f"{name}_{edge}" for name in INTERVALS for edge in ("start", "stop")} - {"init_start"}
EVENTS |= {"eval_accuracy", "throughput_window"}
LATE_SEC = 1.0  # most time that a line may be ahead: all processes of a machine share the monotonic clock


def parse_record(line: str, time_ms: int, clock_sec: float) -> Record:
    """The record of a line that was read at this time. Raises ValueError with what is wrong."""
    content = checked_values.parse_json(line)
    if not isinstance(content, dict) or content.get("kind") not in ("event", "metrics"):
        raise ValueError('needs "kind": "event" or "metrics"')
    values = checked_values.mapping(content.get("values", {}), "values")
    line_ms, line_sec = _times(content, time_ms, clock_sec)
    if content["kind"] == "metrics":
        step = checked_values.count(content.get("step", 0), "step")
        return Record("metrics", line_ms, line_sec, step=step, values=_metrics(values))
    key = content.get("key")
    if not isinstance(key, str) or key not in EVENTS:
        raise ValueError(f"key={checked_values.shortened(key)}: allowed: {', '.join(sorted(EVENTS))}")
    return Record("event", line_ms, line_sec, key=key, values=_event(key, values))


def _times(content: dict[str, Any], time_ms: int, clock_sec: float) -> tuple[int, float]:
    """The line's times by the two clocks, or the time at which it was read."""
    line_ms, line_sec = float(time_ms), clock_sec
    if "time_ms" in content:
        line_ms = checked_values.time_ms(content["time_ms"])
        if line_ms > time_ms + checked_values.LATE_MS:
            raise ValueError(f"time_ms={line_ms:.0f}: is a day or more after the line was read")
        line_sec += (line_ms - time_ms) / 1e3
    if "clock_sec" in content:
        line_sec = checked_values.clock_sec(content["clock_sec"])
        if line_sec > clock_sec + LATE_SEC:
            raise ValueError(f"clock_sec={line_sec}: is after the line was read; from another machine, give time_ms")
    return int(line_ms), line_sec


def _event(key: str, values: dict[str, Any]) -> dict[str, Any]:
    # Only an evaluation may lie within an epoch.
    epoch = checked_values.fraction if key == "eval_accuracy" else checked_values.count
    event_values: dict[str, Any] = {"step": checked_values.count(values["step"], "step")} if "step" in values else {}
    event_values |= {"epoch_num": epoch(values["epoch_num"], "epoch_num")} if "epoch_num" in values else {}
    if key == "eval_accuracy":
        if "samples_count" in values:
            event_values["samples_count"] = checked_values.count(values["samples_count"], "samples_count")
        metrics = values.get("metrics")
        if not isinstance(metrics, dict) or not metrics:
            raise ValueError('eval_accuracy: needs "metrics": {name: value}')
        return event_values | {"metrics": _metrics(metrics, quantities.EVAL)}
    if key == "throughput_window":
        ranks = values.get("rank_ms")
        if "samples" not in values or not isinstance(ranks, list) or not ranks:
            raise ValueError("throughput_window: needs samples and rank_ms")
        samples = checked_values.positive(values["samples"], "samples")
        return {"step": 0, "epoch_num": 0} | event_values | {
            "samples": int(samples) if samples.is_integer() else samples,
            "rank_ms": [checked_values.positive(rank, "rank_ms") for rank in ranks],
        }  # fmt: skip
    return event_values


def _metrics(values: dict[str, Any], prefix: str = "") -> dict[str, float]:
    for key in values:
        if not journal.is_key(prefix + key):
            raise ValueError(f"{checked_values.shortened(key)}: MLflow accepts {journal.KEY_RULE}")
        if is_reserved(prefix + key):
            raise ValueError(f"{key}: timetrial uses this name for its own measurements. Next: give another one")
    return {key: checked_values.number(value, key) for key, value in values.items()}
