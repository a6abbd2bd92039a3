"""What the start of a run took, from the command to `run_start`, by its parts. Pure arithmetic on its events.

The parts of a run whose worker says when it imports add up to `time/init_sec`, and those of one that says what its
compiler did to `time/compile_sec`. A run of an earlier version, a script and a program have the two sums alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tracking.base import quantities
from tracking.measure.training.spans import first, intervals, total
from tracking.record import Record

# By part of the start: the intervals in the journal that it consists of.
OF_PART = {
    "import": ("import",),
    "process_group": ("process_group",),
    "data": ("index", "loaders"),
    "model": ("model",),
    "trainer": ("trainer",),
}
COMPILED = "compiled"  # the event that says what the compiler did, by part
MEASURED = ("trace", "backend", "autotune", "graph_capture")  # parts that it tells; the warm-up is what is left


def summarize(history: Sequence[Record]) -> dict[str, float]:
    """`time/init_sec`, `time/index_sec`, `time/compile_sec` and their parts, as far as they are known."""
    summary: dict[str, float] = {}
    start, init = first(history, "run_start"), first(history, "init_start")
    if indexing := intervals(history, "index"):
        summary[quantities.TIME_INDEX_SEC] = total(indexing)
    if warmups := intervals(history, "warmup"):
        summary[quantities.TIME_COMPILE_SEC] = total(warmups)
        summary |= _compile_parts(history, total(warmups))
    if init is not None and start is not None:
        # The launcher says how long its own start had taken by then: the clock of the person who waits.
        launch_sec = float(init.values.get("since_command_sec", 0.0))
        summary[quantities.TIME_INIT_SEC] = start.clock_sec - (init.clock_sec - launch_sec)
        summary |= _init_parts(history, launch_sec, summary)
    return summary


def _init_parts(history: Sequence[Record], launch_sec: float, sums: dict[str, float]) -> dict[str, float]:
    if not intervals(history, "import"):
        return {}
    parts = {"launch": launch_sec}
    for part, names in OF_PART.items():
        parts[part] = total([span for name in names for span in intervals(history, name)])
    known = sum(parts.values()) + sums.get(quantities.TIME_COMPILE_SEC, 0.0)
    return _with_rest(parts, "rest", sums[quantities.TIME_INIT_SEC], known, quantities.init_part)


def _compile_parts(history: Sequence[Record], whole_sec: float) -> dict[str, float]:
    compiled = first(history, COMPILED)
    if compiled is None:
        return {}
    parts = {part: float(compiled.values[f"{part}_sec"]) for part in MEASURED if f"{part}_sec" in compiled.values}
    return _with_rest(parts, "warmup", whole_sec, sum(parts.values()), quantities.compile_part)


def _with_rest(
    parts: dict[str, float], rest: str, whole_sec: float, known_sec: float, key: Callable[[str], str]
) -> dict[str, float]:
    """The parts and what they leave of the whole; empty where they are more than it: then some overlap."""
    if known_sec > whole_sec:
        return {}
    return {key(part): sec for part, sec in (parts | {rest: whole_sec - known_sec}).items()}
