"""A line that a program writes into the file of `$TIMETRIAL_JOURNAL`: a line of our journal, with less in it.

    {"kind": "event", "key": "eval_accuracy", "values": {"metrics": {"accuracy": 0.97}, "epoch_num": 3}}
    {"kind": "metrics", "step": 50, "values": {"train/loss": 0.31}}

`clock_sec` (time.monotonic) and `time_ms` may be given; without them it is the time at which the line was read.
"""

from __future__ import annotations

import json
from typing import Any

from tracking.run import Record, journal, stored

INTERVALS = ("init", "warmup", "epoch", "eval", "checkpoint", "run")
EVENTS = {f"{name}_{edge}" for name in INTERVALS for edge in ("start", "stop")} - {"init_start"}
EVENTS |= {"eval_accuracy", "throughput_window"}


def record_in(line: str, time_ms: int, clock_sec: float) -> Record:
    """The record of a line that was read at this time. Raises ValueError that says what is wrong with it."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("is no JSON") from None
    if not isinstance(content, dict) or content.get("kind") not in ("event", "metrics"):
        raise ValueError('needs "kind": "event" or "metrics"')
    values = content.get("values", {})
    if not isinstance(values, dict):
        raise ValueError("values: must be a mapping")
    if "time_ms" in content and "clock_sec" not in content:
        clock_sec += (_number(content["time_ms"], "time_ms") - time_ms) / 1e3
    given_ms = int(_number(content.get("time_ms", time_ms), "time_ms"))
    given_sec = _number(content.get("clock_sec", clock_sec), "clock_sec")
    if content["kind"] == "metrics":
        return Record("metrics", given_ms, given_sec, step=_step(content.get("step", 0)), values=_metrics(values))
    key = content.get("key")
    if key not in EVENTS:
        raise ValueError(f"key={key!r}: allowed: {', '.join(sorted(EVENTS))}")
    return Record("event", given_ms, given_sec, key=key, values=_event(key, values))


def _event(key: str, values: dict[str, Any]) -> dict[str, Any]:
    kept = {name: values[name] for name in ("epoch_num", "step") if isinstance(values.get(name), int)}
    if key == "eval_accuracy":
        metrics = values.get("metrics")
        if not isinstance(metrics, dict) or not metrics:
            raise ValueError('eval_accuracy: needs "metrics": {name: value}')
        return kept | {"metrics": _metrics(metrics)}
    if key == "throughput_window":
        samples, ranks = values.get("samples"), values.get("rank_ms")
        if not stored.is_number(samples) or not isinstance(ranks, list) or not ranks:
            raise ValueError("throughput_window: needs samples and rank_ms")
        times = [_number(rank, "rank_ms") for rank in ranks]
        return {"step": 0, "epoch_num": 0} | kept | {"samples": samples, "rank_ms": times}
    return kept


def _metrics(values: dict[str, Any]) -> dict[str, float]:
    for key, value in values.items():
        if not journal.is_key(key):
            raise ValueError(f"{key!r}: MLflow takes {journal.KEY_RULE}")
        _number(value, key)
    return {key: float(value) for key, value in values.items()}


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) == float("inf"):
        raise ValueError(f"{name}={value!r}: must be a number")
    return value


def _step(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"step={value!r}: must be a whole number")
    return value
