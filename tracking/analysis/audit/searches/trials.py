"""The runs of a search, from their folders: the setting, how it ended, its number, and what it used of the budget."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tracking.analysis.audit.journals import JournalFigures
from tracking.base import quantities

KEYS = {
    "time": quantities.TIME_TO_ACCURACY_SEC,
    "cost": quantities.COST_TO_ACCURACY_USD,
    "energy": quantities.ENERGY_TO_ACCURACY_JOULES,
}
LOST = {"preempted", "cancelled", "node_fail", "disk_full"}  # failures after which a search repeats the run
MOST_TRIES = 3  # of a run that crashes each time
BEFORE_START = 16  # the most rows of a journal before its run started


@dataclass(frozen=True)
class Trial:
    """The last attempt of a search's run; `number` is its value by the objective, `bound` its lower bound."""

    run: JournalFigures
    state: str  # reached, stopped, missed, failed, or lost
    number: float | None = None
    bound: float | None = None
    gap: float = 0.0  # the spacing of the numbers at which the run could end

    @property
    def asked(self) -> Mapping[str, Any]:
        return asked_of(self.run)

    @property
    def name(self) -> str:
        return named(self.asked["setting"])

    @property
    def explores(self) -> bool:
        return bool(self.asked["phase"] == "explore")


def asked_of(run: JournalFigures) -> Mapping[str, Any]:
    """The options that a run got from its search."""
    return run.config.get("search") or {}


def named(setting: Mapping[str, Any]) -> str:
    """A setting's name, different for different settings."""
    return " ".join(f"{key}={setting[key]!r}" for key in sorted(setting))


def trials_of(runs: Sequence[JournalFigures], objective: str) -> list[Trial]:
    """The last attempt of each run, by one objective, in order of their start."""
    attempts: dict[int, list[JournalFigures]] = {}
    for run in sorted(runs, key=lambda run: run.created_ms):
        attempts.setdefault(int(asked_of(run)["trial"]), []).append(run)
    return [_trial(attempts[number], objective) for number in sorted(attempts)]


def _trial(attempts: Sequence[JournalFigures], objective: str) -> Trial:
    run, key = attempts[-1], KEYS[objective]
    state = _state(run, len(attempts))
    objectives = str(asked_of(run)["objective"]).split(",")
    if state == "reached" and any(run.value(KEYS[each.strip()]) is None for each in objectives):
        state = "failed"
    if state == "reached":
        number = run.value(key)
        assert number is not None
        return Trial(run, state, number, gap=_gap(run, number))
    known = state in ("stopped", "missed") and run.failure != "nan"
    return Trial(run, state, bound=run.at_least(key) if known else None)


def _state(run: JournalFigures, num_attempts: int) -> str:
    if not run.result or ("resumed" in run.tags and run.failure is None):  # A resumed run has no whole time.
        return "lost"
    crashed = str(run.failure).startswith("signal:")
    if run.failure in LOST or (crashed and num_attempts < MOST_TRIES):
        return "lost"
    if run.failure is not None:
        return {"nan": "missed", "timeout": "stopped", "search": "stopped"}.get(run.failure, "failed")
    counted = run.tags.get("timetrial.uncounted", "exploring") == "exploring"
    if not (run.ended and counted):
        return "failed"
    return "missed" if run.hit_row is None else "reached"


def _gap(run: JournalFigures, number: float) -> float:
    """The spacing of the numbers at which a run can end."""
    last, whole, epochs = (
        run.value(key)
        for key in (
            quantities.TIME_EVALUATION_INTERVAL_SEC, quantities.TIME_TO_ACCURACY_SEC, quantities.EPOCHS_TO_ACCURACY,
        )
    )  # fmt: skip
    if last is not None and whole:
        return number * last / whole
    return number / math.ceil(epochs) if epochs else 0.0


def spent(runs: Sequence[JournalFigures], unit: str) -> dict[str, float]:
    """What all attempts of each phase used of the budget, in its unit, each from its start to its last row."""
    ended = [run for run in runs if run.result]
    spans = [_span(run) for run in ended]
    alone = [last - first for first, last in spans]
    shared = _shared(spans)
    used = {"explore": 0.0, "decide": 0.0}
    for run, own, part in zip(ended, alone, shared, strict=True):
        node = (run.config.get("cluster") or {}).get("kind") == "none" and run.config.get("price_per_gpu_hour") is None
        devices = float(run.params.get("gpus", 0)) * float(run.config.get("nodes", 1))
        parts = {
            "runs": 1.0,
            "seconds": part,
            "gpu-hours": own / 3600 * devices,
            "usd": run.usd(part if node else own) or 0.0,
        }
        used[str(asked_of(run)["phase"])] += parts[unit]
    return used


def unit_of(run: JournalFigures) -> str:
    unit = re.sub(r"[\d.\s]", "", str(asked_of(run)["budget"]))
    return unit if unit in ("gpu-hours", "usd", "runs") else "seconds"


def _span(run: JournalFigures) -> tuple[float, float]:
    """A run's start by the wall clock, and its end, which adds the duration by the monotonic clock; in seconds."""
    starts = [place for place, row in enumerate(run.rows[: BEFORE_START + 1]) if row.get("key") == "init_start"]
    rows = run.rows[starts[-1] if starts else 0 :]
    if not rows:
        return 0.0, 0.0
    first = min(rows, key=lambda row: row["clock_sec"])
    start = float(first["time_ms"]) / 1e3
    return start, start + max(float(row["clock_sec"]) for row in rows) - float(first["clock_sec"])


def _shared(spans: Sequence[tuple[float, float]]) -> list[float]:
    """The seconds of each span; overlapping spans share their common seconds equally."""
    edges = sorted({edge for span in spans for edge in span})
    used = [0.0] * len(spans)
    for low, high in pairwise(edges):
        within = [place for place, (first, last) in enumerate(spans) if first <= low and high <= last]
        for place in within:
            used[place] += (high - low) / len(within)
    return used
