"""The duration of a run's start, from the command to `run_start`, by part. Pure arithmetic on its events.

The parts add up to `time/init_sec` if the worker records its imports. The compiler's parts add up to
`time/compile_sec` if the worker records its compiler. Runs of earlier versions, scripts and programs have only the
two sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tracking.base import quantities
from tracking.measure.training.spans import first, intervals, total
from tracking.record import Record

# For each part of the start, the journal's intervals that make it up.
INTERVALS_BY_PART = {
    "import": ("import",),
    "process_group": ("process_group",),
    "data": ("index", "loaders"),
    "model": ("model",),
    "trainer": ("trainer",),
}
COMPILED_EVENT = "compiled"  # the event with the compiler's seconds, by part
COMPILE_PARTS = ("trace", "backend", "autotune", "graph_capture")  # the parts in that event; the rest is the warm-up


def summarize(history: Sequence[Record]) -> dict[str, float]:
    """`time/init_sec`, `time/index_sec`, `time/compile_sec` and their parts, where known."""
    summary: dict[str, float] = {}
    start, init = first(history, "run_start"), first(history, "init_start")
    if indexing := intervals(history, "index"):
        summary[quantities.TIME_INDEX_SEC] = total(indexing)
    if warmups := intervals(history, "warmup"):
        # A run waits for NCCL when it has loaded its compiled code; that time has a part of its own.
        waits = [wait for wait in intervals(history, "process_group") if any(a <= wait[0] < b for a, b in warmups)]
        summary[quantities.TIME_COMPILE_SEC] = compile_sec = total(warmups) - total(waits)
        summary |= _compile_parts(history, compile_sec)
    if init is not None and start is not None:
        # The user's wait begins with the command, so the launcher states how long its own start took.
        launch_sec = float(init.values.get("since_command_sec", 0.0))
        summary[quantities.TIME_INIT_SEC] = start.clock_sec - (init.clock_sec - launch_sec)
        summary |= _init_parts(history, launch_sec, summary)
    return summary


def _init_parts(history: Sequence[Record], launch_sec: float, sums: dict[str, float]) -> dict[str, float]:
    if not intervals(history, "import"):
        return {}
    parts = {"launch": launch_sec}
    for part, names in INTERVALS_BY_PART.items():
        parts[part] = total([span for name in names for span in intervals(history, name)])
    parts["import"] += _fork_wait_sec(history)
    known_sec = sum(parts.values()) + sums.get(quantities.TIME_COMPILE_SEC, 0.0)
    return _with_rest(parts, "rest", sums[quantities.TIME_INIT_SEC], known_sec, quantities.init_part)


def _fork_wait_sec(history: Sequence[Record]) -> float:
    """Seconds that the run waited for the server's imports before its worker was forked.

    The run that started the server has these imports in its own journal, so they are not added again.
    """
    init, fork, import_start = (first(history, key) for key in ("init_start", "forked", "import_start"))
    if init is None or fork is None or (import_start and import_start.clock_sec < fork.clock_sec):
        return 0.0
    return fork.clock_sec - init.clock_sec


def _compile_parts(history: Sequence[Record], whole_sec: float) -> dict[str, float]:
    compiled = first(history, COMPILED_EVENT)
    if compiled is None:
        return {}
    parts = {part: float(compiled.values[f"{part}_sec"]) for part in COMPILE_PARTS if f"{part}_sec" in compiled.values}
    return _with_rest(parts, "warmup", whole_sec, sum(parts.values()), quantities.compile_part)


def _with_rest(
    parts: dict[str, float], rest_name: str, whole_sec: float, known_sec: float, key: Callable[[str], str]
) -> dict[str, float]:
    """The parts and the rest of the whole; {} if the parts exceed the whole, since then some overlap."""
    if known_sec > whole_sec:
        return {}
    return {key(part): sec for part, sec in (parts | {rest_name: whole_sec - known_sec}).items()}
