"""Goodput: the share of the time from submission to the end that was training, and the parts of the rest.

Pure arithmetic on a run's events; the shares add up to 1. All attempts of a resumed run are included.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tracking.base import quantities
from tracking.base.time_parts import GOODPUT_PARTS, INIT_PARTS
from tracking.measure.training import clock, spans, start_times
from tracking.record import Record, attempts, files, journal, run_folder

TRAIN = "train"  # the part that is goodput
PHASES = {"selfplay": "selfplay/sec", "gate": "gate/sec"}  # parts that a model logs once an epoch, and their metrics


def account(folder: Path, finished: bool, failed_ms: int = 0) -> dict[str, Any]:
    """A run's time from submission to end by part, for its result; journals the shares.

    Keys: `seconds` and `shares` by part, and `start` with the seconds of its own parts. {} if it is not known. A run
    that failed at `failed_ms` before it started was in the queue until then.
    """
    try:
        records = [record for record, _ in journal.read(folder / run_folder.JOURNAL)]
        events = [record for record in records if record.kind == "event" or _is_phase(record)]
        created_ms = run_folder.read_info(folder).created_ms
        parts = seconds(events, created_ms, records[-1].time_ms if records else 0, finished)
        if clock.first(events, "init_start") is None and failed_ms > created_ms:
            parts = {"queue": (failed_ms - created_ms) / 1e3}
        part_shares = {name: round(share, 4) for name, share in shares(parts).items()}
        journaled = {quantities.goodput(name): share for name, share in part_shares.items()}
        if journaled and not (records and records[-1].values == journaled):
            journal.append_at_end(folder / run_folder.JOURNAL, journaled)
    except Exception as error:  # the run keeps its result in any case
        logging.getLogger(__name__).warning("no goodput for this run: %s: %s", type(error).__name__, error)
        return {}
    rounded = {name: round(sec, 4) for name, sec in parts.items()}
    return {"seconds": rounded, "shares": part_shares, "start": start_parts(events)} if part_shares else {}


def job_parts(sweep: Path) -> list[dict[str, float]]:
    """The seconds by part of every job that ended, failed ones too."""
    parts = []
    for job in files.folders(sweep, run_folder.CONFIG):
        with suppress(OSError, ValueError, LookupError, TypeError):
            result = run_folder.read_result(job)
            parts += [result.goodput["seconds"]] if result and result.goodput else []
    return parts


def seconds(events: Sequence[Record], created_ms: int, ended_ms: int, finished: bool) -> dict[str, float]:
    """Seconds by part (GOODPUT_PARTS), which add up to the time from submission to the end.

    `events` include the metrics of PHASES if the model logs them, in the order of the journal. If a run did not finish,
    all its time after the queue is lost. {} if nothing began, or the wall clock went back.
    """
    init = clock.first(events, "init_start")
    if init is None:
        return {}
    command_ms = init.time_ms - 1e3 * float(init.values.get("since_command_sec", 0.0))
    total_sec = (ended_ms - min(created_ms, command_ms)) / 1e3
    parts = {"queue": min(max(0.0, (command_ms - created_ms) / 1e3), total_sec)}  # The wall clock may go back.
    elapsed = attempts.elapsed(events)
    if total_sec <= 0 or elapsed is None:
        return {}
    history = attempts.history(events)
    trained = clock.first(events, "run_start") and clock.first(history, "run_stop")
    if not finished or trained is None:
        return parts | {"lost": max(0.0, total_sec - parts["queue"])}
    parts |= _training_parts(events, history, elapsed, ended_ms)
    known_sec = sum(parts.values())
    scale = min(1.0, total_sec / known_sec) if known_sec else 1.0  # a machine's two clocks differ by some milliseconds
    parts = {name: max(0.0, scale * sec) for name, sec in parts.items()}
    return parts | {"idle": max(0.0, total_sec - sum(parts.values()))}


def _training_parts(
    events: Sequence[Record], history: Sequence[Record], elapsed: Sequence[float], ended_ms: int
) -> dict[str, float]:
    start_figures = start_times.summarize(history)
    compiling = start_figures.get(quantities.TIME_COMPILE_SEC, 0.0)
    evaluation, checkpoint = (spans.total(clock.intervals(history, name)) for name in ("eval", "checkpoint"))
    stop = next(event for event in reversed(history) if event.key == "run_stop")
    training = spans.total(spans.training(history))
    if clock.first(history, "epoch_start") is None:  # a program that says when it evaluates, but not when epochs begin
        training = sum(end - begin for begin, end in clock.intervals(history, "run")) - evaluation - checkpoint
    # The first step of a generation waits for its positions: that is self-play. The gate follows the last step.
    phases = _phases(history)
    wait_sec = min(training, max(0.0, _wait_sec(history) - phases.get("selfplay", 0.0)))
    begin_index = next(index for index, event in enumerate(events) if event.key in ("run_start", attempts.RESUME))
    if events[begin_index].key == attempts.RESUME:  # an attempt ended before its training began
        begin_index = max(0, begin_index - 1)
    return {
        "start": start_figures.get(quantities.TIME_INIT_SEC, 0.0) - compiling,
        "compile": compiling,
        "data": wait_sec,
        **phases,
        TRAIN: max(0.0, training - wait_sec - sum(phases.values())),
        "evaluation": evaluation,
        "checkpoint": checkpoint,
        "lost": elapsed[-1] - elapsed[begin_index] - attempts.trained_sec(history),
        "end": (ended_ms - stop.time_ms) / 1e3,
    }


def _wait_sec(history: Sequence[Record]) -> float:
    """Seconds that the rank with the longest wait waited for data."""
    waits = [event.values.get("rank_wait_ms") for event in history if event.key == "throughput_window"]
    sums = [sum(row) for row in zip(*filter(None, waits), strict=False)]
    return max(sums, default=0.0) / 1e3


def _is_phase(record: Record) -> bool:
    return record.kind == "metrics" and not record.values.keys().isdisjoint(PHASES.values())


def _phases(history: Sequence[Record]) -> dict[str, float]:
    """Seconds of the logged phases; a part that no epoch logged is absent."""
    logged = [record.values for record in history if _is_phase(record)]
    return {
        part: sum(float(values.get(key, 0.0)) for values in logged)
        for part, key in PHASES.items()
        if any(key in values for values in logged)
    }


def start_parts(events: Sequence[Record]) -> dict[str, float]:
    """Seconds of the known parts of the start, without compiling."""
    start_figures = start_times.summarize(attempts.history(events)) if events else {}
    keys = {part: quantities.init_part(part) for part in INIT_PARTS}
    return {part: round(start_figures[key], 4) for part, key in keys.items() if key in start_figures}


def shares(parts: Mapping[str, float]) -> dict[str, float]:
    """The parts as shares of their sum."""
    total_sec = sum(parts.values())
    return {name: sec / total_sec for name, sec in parts.items()} if total_sec else {}


def sum_over_runs(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The sums of the parts over several runs, such as a sweep's."""
    return {
        name: sum(parts.get(name, 0.0) for parts in runs)
        for name in GOODPUT_PARTS
        if any(name in parts for parts in runs)
    }


def words(parts: Mapping[str, float]) -> str:
    """The parts in words: `63 % of 41.2 s was training; start 21 %, ...`; "" without parts."""
    part_shares = shares(parts)
    if not part_shares:
        return ""
    rows = ((share, name) for name, share in part_shares.items() if name != TRAIN and share >= 0.005)
    rest = sorted(rows, reverse=True)
    others = ", ".join(f"{GOODPUT_PARTS[name]} {100 * share:.0f} %" for share, name in rest)
    trained = f"{100 * part_shares.get(TRAIN, 0.0):.0f} % of {sum(parts.values()):.1f} s was training"
    return f"{trained}; {others}" if others else trained
