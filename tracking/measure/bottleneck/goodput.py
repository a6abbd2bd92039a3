"""Goodput: the share of the time from submission to the end that trained what counted, and what the rest went to.

Pure arithmetic on a run's events, so that the shares add up to 1. All attempts of a resumed run are in it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tracking.base import quantities
from tracking.base.start_parts import INIT_PARTS
from tracking.measure.training import clock, spans, start_times
from tracking.record import Journal, Record, attempts, files, journal, run_folder

TRAIN = "train"  # the part that counts


def account(folder: Path, finished: bool) -> dict[str, Any]:
    """Where a run's time went from its submission to its end, for its result; the shares are journaled.

    `seconds` and `shares` by part, and `start` by its own parts in seconds. Nothing where it is not known.
    """
    try:
        records = [record for record, _ in journal.read(folder / run_folder.JOURNAL)]
        events = [record for record in records if record.kind == "event"]
        created_ms = run_folder.read_info(folder).created_ms
        parts = seconds(events, created_ms, records[-1].time_ms if records else 0, finished)
        divided = {name: round(share, 4) for name, share in shares(parts).items()}
        if divided:
            log = Journal(folder / run_folder.JOURNAL)
            log.metrics({quantities.goodput(name): share for name, share in divided.items()})
            log.close()
    except Exception as error:  # Whatever it is, the run keeps its result.
        logging.getLogger(__name__).warning("not known where the time went: %s: %s", type(error).__name__, error)
        return {}
    rounded = {name: round(sec, 4) for name, sec in parts.items()}
    return {"seconds": rounded, "shares": divided, "start": start_parts(events)} if divided else {}


def of_jobs(sweep: Path) -> list[dict[str, float]]:
    """Of every job that ended, where its time went, in seconds by part: of failed ones too."""
    parts = []
    for job in files.folders(sweep, run_folder.CONFIG):
        with suppress(OSError, ValueError, LookupError, TypeError):
            result = run_folder.read_result(job)
            parts += [result.goodput["seconds"]] if result and result.goodput else []
    return parts


def seconds(events: Sequence[Record], created_ms: int, ended_ms: int, finished: bool) -> dict[str, float]:
    """Seconds by part (quantities.GOODPUT_PARTS), which add up to the time from submission to the end.

    Of a run that did not finish all but the queue is lost. Empty where nothing began, or the wall clock went back.
    """
    init = clock.first(events, "init_start")
    if init is None:
        return {}
    begun_ms = init.time_ms - 1e3 * float(init.values.get("since_command_sec", 0.0))
    whole = (ended_ms - min(created_ms, begun_ms)) / 1e3
    parts = {"queue": max(0.0, (begun_ms - created_ms) / 1e3)}
    elapsed = attempts.elapsed(events)
    if whole <= 0 or elapsed is None:
        return {}
    history = attempts.history(events)
    trained = clock.first(events, "run_start") and clock.first(history, "run_stop")
    if not finished or trained is None:
        return parts | {"lost": max(0.0, whole - parts["queue"])}
    parts |= _of_training(events, history, elapsed, ended_ms)
    spent = sum(parts.values())
    scale = min(1.0, whole / spent) if spent else 1.0  # The two clocks of a machine differ by some milliseconds.
    parts = {name: max(0.0, scale * sec) for name, sec in parts.items()}
    return parts | {"idle": max(0.0, whole - sum(parts.values()))}


def _of_training(
    events: Sequence[Record], history: Sequence[Record], elapsed: Sequence[float], ended_ms: int
) -> dict[str, float]:
    begun = start_times.summarize(history)
    compiling = begun.get(quantities.TIME_COMPILE_SEC, 0.0)
    training = sum(end - begin for begin, end in spans.training(history))
    waited = _waited(history)
    begins = next(place for place, event in enumerate(events) if event.key in ("run_start", attempts.RESUME))
    if events[begins].key == attempts.RESUME:  # An attempt ended before its training began.
        begins = max(0, begins - 1)
    trained, kept = attempts.trained_sec(events), attempts.trained_sec(history)
    stop = next(event for event in reversed(history) if event.key == "run_stop")
    return {
        "start": begun.get(quantities.TIME_INIT_SEC, 0.0) - compiling,
        "compile": compiling,
        "data": min(training, waited),
        TRAIN: max(0.0, training - waited),
        "evaluation": spans.total(clock.intervals(history, "eval")),
        "checkpoint": spans.total(clock.intervals(history, "checkpoint")),
        "lost": trained - kept + elapsed[-1] - elapsed[begins] - trained,
        "end": (ended_ms - stop.time_ms) / 1e3,
    }


def _waited(history: Sequence[Record]) -> float:
    """Seconds in which the rank that waited most for data did so."""
    said = [event.values.get("rank_wait_ms") for event in history if event.key == "throughput_window"]
    sums = [sum(row) for row in zip(*filter(None, said), strict=False)]
    return max(sums, default=0.0) / 1e3


def start_parts(events: Sequence[Record]) -> dict[str, float]:
    """Seconds of the parts of the start but compiling, as far as they are known."""
    begun = start_times.summarize(attempts.history(events)) if events else {}
    keys = {part: quantities.init_part(part) for part in INIT_PARTS}
    return {part: round(begun[key], 4) for part, key in keys.items() if key in begun}


def shares(parts: Mapping[str, float]) -> dict[str, float]:
    """The parts as shares of their sum."""
    whole = sum(parts.values())
    return {name: sec / whole for name, sec in parts.items()} if whole else {}


def together(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The parts of several runs, added up: those of a sweep."""
    return {
        name: sum(parts.get(name, 0.0) for parts in runs)
        for name in quantities.GOODPUT_PARTS
        if any(name in parts for parts in runs)
    }


def words(parts: Mapping[str, float]) -> str:
    """`63 % of 41.2 s trained; start 21 %, compile 9 %, evaluation 5 %`; empty where nothing is known."""
    divided = shares(parts)
    if not divided:
        return ""
    rest = sorted(((share, name) for name, share in divided.items() if name != TRAIN and share >= 0.005), reverse=True)
    others = ", ".join(f"{quantities.GOODPUT_PARTS[name]} {100 * share:.0f} %" for share, name in rest)
    trained = f"{100 * divided.get(TRAIN, 0.0):.0f} % of {sum(parts.values()):.1f} s trained"
    return f"{trained}; {others}" if others else trained
