"""Time to accuracy from a run's events. Pure arithmetic: the same events give the same figures, now or in a report.

The clock starts at `run_start`, the moment before training data is first touched, and is never paused. MLPerf's clock
stops at the evaluation that reaches the target (github.com/mlcommons/training_policies, training_rules.adoc, section
on run results); DAWNBench's leaves out evaluation and checkpoints (dawn.cs.stanford.edu/benchmark, "time to train").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracking.journal import Record

OFF_CLOCK = ("eval", "checkpoint")  # intervals that DAWNBench's clock leaves out


def reached(metrics: Mapping[str, float], targets: Mapping[str, float]) -> bool:
    """Whether every target is met; a metric that is missing or NaN meets nothing."""
    return bool(targets) and all(metrics.get(name, float("nan")) >= value for name, value in targets.items())


def first(events: Sequence[Record], key: str) -> Record | None:
    return next((event for event in events if event.key == key), None)


def intervals(events: Sequence[Record], name: str) -> list[tuple[float, float]]:
    """Start and end, in seconds of the monotonic clock, of each `<name>_start` to `<name>_stop` that has both.

    Raises ValueError where an end lies before its start: the clock went back, and no figure can be trusted.
    """
    found = []
    start: float | None = None
    for event in events:
        if event.key == f"{name}_start":
            start = event.clock_sec
        elif event.key == f"{name}_stop" and start is not None:
            if event.clock_sec < start:
                raise ValueError(f"{name} ends {start - event.clock_sec:.3f} s before it starts: the clock went back")
            found.append((start, event.clock_sec))
            start = None
    return found


def summarize(events: Sequence[Record], targets: Mapping[str, float]) -> dict[str, float]:
    """The `time/*`, `epochs/to_accuracy` and `target_reached` metrics of a run, as far as it came.

    `events` are in the order they happened. There is no `time/to_accuracy*` where the target was missed, and no
    `target_reached` where the run has no target.
    """
    start = first(events, "run_start")
    if start is None:
        return {}
    summary: dict[str, float] = {}
    init = first(events, "init_start")
    if init is not None:
        # The launcher says how long its own start had taken by then: the clock of the person who waits.
        command = init.clock_sec - float(init.values.get("since_command_sec", 0.0))
        summary["time/init_sec"] = start.clock_sec - command
    if indexing := intervals(events, "index"):
        summary["time/index_sec"] = _total(indexing)
    if warmups := intervals(events, "warmup"):
        summary["time/compile_sec"] = _total(warmups)
    if epochs := intervals(events, "epoch"):
        summary["time/train_sec"] = _total(epochs)
        summary["time/epoch_sec"] = _total(epochs) / len(epochs)
    evaluations = intervals(events, "eval")
    if evaluations:
        summary["time/eval_sec"] = _total(evaluations)
    if targets:
        summary |= _to_accuracy(events, start.clock_sec, targets)
    return summary


def _to_accuracy(events: Sequence[Record], start: float, targets: Mapping[str, float]) -> dict[str, float]:
    for index, event in enumerate(events):
        if event.key == "eval_accuracy" and reached(event.values["metrics"], targets):
            elapsed = event.clock_sec - start
            return {
                "time/to_accuracy_sec": elapsed,
                "time/to_accuracy_train_sec": elapsed - sum(_spent(events[: index + 1], name) for name in OFF_CLOCK),
                "epochs/to_accuracy": float(event.values["epoch_num"]),
                "target_reached": 1.0,
            }
    return {"target_reached": 0.0}


def _spent(events: Sequence[Record], name: str) -> float:
    """Seconds in intervals of this name up to the last event; one that is still open then ends there."""
    closed = intervals(events, name)
    starts = [event.clock_sec for event in events if event.key == f"{name}_start"]
    still_open = events[-1].clock_sec - starts[-1] if len(starts) > len(closed) else 0.0
    return _total(closed) + still_open


def _total(found: list[tuple[float, float]]) -> float:
    return sum(end - begin for begin, end in found)
