"""Runs that shared a machine with others of their sweep: not compared in speed with runs that had it alone."""

from __future__ import annotations

from collections.abc import Sequence

from conf.nodes import SHARED
from tracking.results import Run

ASKED = "--with-neighbours"


def shared(run: Run) -> bool:
    """Whether it was one of several jobs that ran side by side on purpose (sweep.jobs_at_once)."""
    return run.tags.get("neighbours", "").startswith(SHARED)


def comparable(runs: Sequence[Run]) -> tuple[list[Run], str]:
    """The runs that may be compared in speed, and a sentence on those that are left out; "" where none is."""
    beside = [run for run in runs if shared(run)]
    alone = [run for run in runs if not shared(run)]
    if not beside or not alone:
        return list(runs), ""
    how = ", ".join(sorted({run.tags["neighbours"].partition(";")[0] for run in beside}))
    return alone, (
        f"left out: {len(beside)} of {len(runs)} runs, which shared their machine ({how}), as the others did not;"
        f" {ASKED} compares them all the same"
    )


def check_sides(baseline: Sequence[Run], candidate: Sequence[Run]) -> None:
    """Raise ValueError where some runs of two sides shared their machine and others did not."""
    everything = [*baseline, *candidate]
    beside = [run for run in everything if shared(run)]
    if beside and len(beside) < len(everything):
        raise ValueError(
            f"{len(beside)} of {len(everything)} runs shared their machine ({beside[0].name}:"
            f" {beside[0].tags['neighbours']}), and the others did not, so that their speeds do not compare; name runs"
            f" of one kind, or give {ASKED}"
        )
