"""The epochs of a run and their time, from its journal alone; and the figures that the run marked as unknown."""

from __future__ import annotations

import math

from tracking.analysis.audit.journals.journal_run import JournalRun


def unknown_figures(run: JournalRun) -> tuple[str, ...]:
    """Prefixes of the metrics that the run marked as unknown: computed from its events, they would be wrong."""
    return tuple(key for row in run.rows if row.get("key") == "unknown_figures" for key in row["values"]["keys"])


def trained(run: JournalRun) -> float | None:
    """The number of epochs, with the trained part of one that ended early; None if that part is not known."""
    ends = [row for row in run.rows if row["kind"] == "event" and row["key"] == "epoch_stop"]
    parts = [row["values"].get("part", 1) for row in ends]
    whole = min(len(run.times("epoch_start")), len(parts))
    return None if None in parts else float(whole - len(parts) + sum(parts)) or None


def trained_sec(run: JournalRun) -> float:
    """Seconds of all epochs, without the evaluations and checkpoints in them."""
    pairs = {
        name: list(zip(run.times(f"{name}_start"), run.times(f"{name}_stop"), strict=False))
        for name in ("epoch", "eval", "checkpoint")
    }
    others = [*pairs["eval"], *pairs["checkpoint"]]
    inner = [end - start for start, end in others if any(a <= start and end <= b for a, b in pairs["epoch"])]
    return math.fsum(stop - start for start, stop in pairs["epoch"]) - math.fsum(inner)


def epoch_sec(run: JournalRun) -> float | None:
    """Seconds of an epoch; None if the number of epochs is not known."""
    number = trained(run)
    return trained_sec(run) / number if number else None
