"""Time to accuracy from a run's events. Pure arithmetic: the same events always give the same figures.

The clock starts at `run_start`, just before training data is first touched, and is never paused. MLPerf's clock stops
at the evaluation that reaches the target (github.com/mlcommons/training_policies, training_rules.adoc, section on run
results). DAWNBench's leaves out evaluation and checkpoints (dawn.cs.stanford.edu/benchmark, "time to train"). Neither
defines a time for a run that was interrupted and resumed, so times of resumed runs have their own names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from conf.target import Target
from tracking.base import quantities
from tracking.measure.training import start_times
from tracking.measure.training.spans import first as first
from tracking.measure.training.spans import intervals as intervals
from tracking.measure.training.spans import total
from tracking.record import Record, attempts

OFF_CLOCK = ("eval", "checkpoint")  # intervals that DAWNBench's clock leaves out


def summarize(events: Sequence[Record], targets: Mapping[str, Target]) -> dict[str, float]:
    """The `time/*`, `resume/*`, `epochs/*`, `evaluations/*` and `target_reached` metrics of a run so far.

    `events` are in the order in which they happened. `time/to_accuracy*` is absent if the run missed its target or was
    resumed, `target_reached` if it has no target. A run that missed has `time/censored_sec`. Raises ValueError if the
    clock went back.
    """
    if first(events, "run_start") is None:
        return {}
    indices = attempts.surviving(events)
    history = attempts.spliced(events, indices)
    summary = _durations(history)
    hit_index = next((index for index, event in enumerate(history) if _hits(event, targets)), None)
    if targets:
        summary[quantities.TARGET_REACHED] = float(hit_index is not None)
    if hit_index is not None and "epoch_num" in history[hit_index].values:  # a program may not report epochs
        summary[quantities.EPOCHS_TO_ACCURACY] = float(history[hit_index].values["epoch_num"])
    up_to_target = history if hit_index is None else history[: hit_index + 1]
    if last := _last_evaluation(up_to_target, targets):
        summary[quantities.TIME_EVALUATION_INTERVAL_SEC] = last[1]
    if last and hit_index is not None:
        summary[quantities.EVALUATIONS_TO_ACCURACY] = last[0]
    if first(events, attempts.RESUME) is not None:
        return summary | _resume_figures(events, indices, history, hit_index)
    return summary | (censored(history, targets) if hit_index is None else _to_accuracy(history, hit_index))


def censored(events: Sequence[Record], targets: Mapping[str, Target]) -> dict[str, float]:
    """The censored time of a run without its target, in seconds and evaluations; {} if `censored_sec` is None."""
    seconds = attempts.censored_sec(events, targets)
    if seconds is None:
        return {}
    last = _last_evaluation(events, targets)
    return {quantities.TIME_CENSORED_SEC: seconds, quantities.EVALUATIONS_CENSORED: last[0] if last else 0.0}


def _last_evaluation(events: Sequence[Record], targets: Mapping[str, Target]) -> tuple[float, float] | None:
    """The number of the last evaluation since `run_start`, from 1, and its seconds since the previous one.

    The first evaluation's seconds are since `run_start`. Only evaluations with the metrics of all targets count, since
    the others cannot reach them. Repeats by further ranks of a program are skipped. A journal may leave evaluations out
    (`programs.thinning`). Each later one then states its number, and the seconds are the mean over the gap. None
    without targets or without an evaluation.
    """
    start = next((index for index, event in enumerate(events) if event.key == "run_start"), len(events))
    complete = [event for event in events[start:] if event.key == "eval_accuracy" and _has_all(event, targets)]
    evaluations = complete[:1] + [event for previous, event in pairwise(complete) if not _is_repeat(previous, event)]
    if not evaluations:
        return None
    numbers = [float(event.values.get("eval_num", number)) for number, event in enumerate(evaluations, 1)]
    previous, previous_number = (evaluations[-2], numbers[-2]) if len(evaluations) > 1 else (events[start], 0.0)
    sec = (evaluations[-1].clock_sec - previous.clock_sec) / max(1.0, numbers[-1] - previous_number)
    return numbers[-1], sec


def _has_all(evaluation: Record, targets: Mapping[str, Target]) -> bool:
    return bool(targets) and targets.keys() <= evaluation.values["metrics"].keys()


def _is_repeat(previous: Record, evaluation: Record) -> bool:
    return "epoch_num" in evaluation.values and evaluation.values == previous.values


def _hits(event: Record, targets: Mapping[str, Target]) -> bool:
    return event.key == "eval_accuracy" and attempts.reached(event.values["metrics"], targets)


def _durations(history: Sequence[Record]) -> dict[str, float]:
    summary = start_times.summarize(history)
    if epochs := intervals(history, "epoch"):
        off_clock = [span for name in OFF_CLOCK for span in intervals(history, name)]
        summary[quantities.TIME_TRAIN_SEC] = total(epochs) - _nested_sec(off_clock, epochs)
        if (num_trained := _num_trained(history, len(epochs))) is not None:
            summary[quantities.TIME_EPOCH_SEC] = summary[quantities.TIME_TRAIN_SEC] / num_trained
            summary[quantities.EPOCHS_TRAINED] = num_trained
    if evaluations := intervals(history, "eval"):
        summary[quantities.TIME_EVAL_SEC] = total(evaluations)
    if checkpoints := intervals(history, "checkpoint"):
        summary[quantities.TIME_CHECKPOINT_SEC] = total(checkpoints)
        summary[quantities.CHECKPOINT_NUM_FAILED] = float(sum("error" in event.values for event in history))
    return summary


def _num_trained(history: Sequence[Record], num_epochs: int) -> float | None:
    """The number of epochs trained, a fraction if the last ended early; None if that fraction is unknown."""
    parts = [event.values["part"] for event in history if event.key == "epoch_stop" and "part" in event.values]
    return None if None in parts else num_epochs - sum(1.0 - part for part in parts)


def _to_accuracy(history: Sequence[Record], hit_index: int) -> dict[str, float]:
    start = first(history, "run_start")
    assert start is not None
    sec = history[hit_index].clock_sec - start.clock_sec
    if sec < 0:
        raise ValueError(f"the target is reached {-sec:.3f} s before run_start: the clock went back")
    off_clock_sec = sum(_seconds_in(history[: hit_index + 1], name) for name in OFF_CLOCK)
    return {quantities.TIME_TO_ACCURACY_SEC: sec, quantities.TIME_TO_ACCURACY_TRAIN_SEC: sec - off_clock_sec}


def _resume_figures(
    events: Sequence[Record], indices: Sequence[int], history: Sequence[Record], hit_index: int | None
) -> dict[str, float]:
    """The metrics of a resumed run in place of `time/to_accuracy*`, and the cost of its interruptions."""
    start = next(index for index, event in enumerate(events) if event.key == "run_start")
    trained_sec = attempts.trained_sec(events)
    summary = {
        quantities.RESUME_COUNT: float(len(attempts.split(events)) - 1),
        quantities.RESUME_LOST_SEC: trained_sec - attempts.trained_sec(history),
    }
    elapsed = attempts.elapsed(events)
    if elapsed is not None:
        summary[quantities.RESUME_DOWN_SEC] = elapsed[-1] - elapsed[start] - trained_sec
    if hit_index is not None:
        train_sec = _to_accuracy(history, hit_index)[quantities.TIME_TO_ACCURACY_TRAIN_SEC]
        summary[quantities.TIME_RESUMED_TO_ACCURACY_TRAIN_SEC] = train_sec
        if elapsed is not None:
            summary[quantities.TIME_RESUMED_TO_ACCURACY_SEC] = elapsed[indices[hit_index]] - elapsed[start]
    return summary


def _seconds_in(events: Sequence[Record], name: str) -> float:
    """Seconds in intervals of this name; one that is still open counts up to the last event."""
    edges = [event for event in events if event.key in (f"{name}_start", f"{name}_stop")]
    still_open = events[-1].clock_sec - edges[-1].clock_sec if edges and edges[-1].key == f"{name}_start" else 0.0
    return total(intervals(events, name)) + still_open


def _nested_sec(spans: list[tuple[float, float]], outer: list[tuple[float, float]]) -> float:
    """Seconds of the spans that lie within an outer one, such as evaluations within epochs."""
    return total([span for span in spans if any(begin <= span[0] and span[1] <= end for begin, end in outer)])
