"""The present part of a run's start, and an estimate of its time.

An estimate is the median of earlier runs in the same `runs_dir`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from conf.schema import RunConfig
from tracking.base import quantities
from tracking.jobs.plan import earlier_runs
from tracking.record import Record, Result, run_folder

# By the event that begins a part: its label, and the metric of its time.
PARTS = {
    "init_start": ("starting", ""),
    "import_start": ("importing PyTorch", quantities.init_part("import")),
    "process_group_start": ("joining the processes", quantities.init_part("process_group")),
    "index_start": ("reading the data's index", quantities.init_part("data")),
    "model_start": ("making the model", quantities.init_part("model")),
    "loaders_start": ("making the loaders", ""),
    "trainer_start": ("setting up the trainer", quantities.init_part("trainer")),
    "warmup_start": ("compiling and warming up", quantities.TIME_COMPILE_SEC),
}
END = "run_start"
COMPILING = "compiling"  # the event before the first compilation, with the number of cached graphs
SHOWN_SEC = 1.0  # a part is shown once it has taken so long
FIRST_LINE_SEC = 10.0  # without a terminal, a line after this time and after each doubling


@dataclass(frozen=True)
class EarlierStart:
    """An earlier run's start: `facts` is its `Result.start`, and `seconds` its `time/*` metrics."""

    facts: dict[str, Any]
    seconds: dict[str, float]

    @property
    def is_cold(self) -> bool:
        """Whether the run compiled at least one graph that was not cached."""
        return bool(self.facts.get("num_compiled"))


def earlier_starts(runs_dir: Path) -> list[EarlierStart]:
    """Starts of the newest finished runs; unreadable folders are skipped."""
    return list(islice(_starts(runs_dir), earlier_runs.MOST_RUNS))


def _starts(runs_dir: Path) -> Iterator[EarlierStart]:
    for folder in islice(earlier_runs.newest_first(runs_dir), earlier_runs.MOST_FOLDERS):
        with suppress(OSError, ValueError):
            result = run_folder.read_result(folder)
            if result is not None and result.status == "finished" and result.start:
                yield EarlierStart(result.start, _seconds(result))


def _seconds(result: Result) -> dict[str, float]:
    return {
        key: float(value)
        for key, value in result.metrics.items()
        if key.startswith(quantities.TIME) and isinstance(value, int | float) and math.isfinite(value)
    }


class Waiting:
    """The start of one run, from its journal's records. `read` loads the starts of earlier runs, on first use."""

    def __init__(self, config: RunConfig, read: Callable[[Path], list[EarlierStart]] = earlier_starts) -> None:
        self._config = config
        self._read = read
        self._starts: list[EarlierStart] | None = None
        self._tags: dict[str, Any] = {}
        self._key = ""  # the event that began the present part
        self._since_ms = 0
        self._ended_parts: set[str] = set()
        self._num_cached: int | None = None
        self._next_line_sec = FIRST_LINE_SEC

    def see(self, record: Record) -> None:
        """Update the state of the start from a record."""
        if record.kind == "tags":
            self._tags |= record.values
        elif record.key == COMPILING and record.kind == "event":
            self._num_cached = int(record.values["num_cached"])
        elif record.key in PARTS or record.key == END:
            self._ended_parts.add(self._key)
            self._key, self._since_ms = "" if record.key == END else record.key, record.time_ms
            self._next_line_sec = FIRST_LINE_SEC

    @property
    def part(self) -> str:
        """The label of the present part; empty before the start and once the run trains."""
        if self._config.is_program() and self._key == "init_start":
            return "waiting for the program's first output"  # It may already train without printing anything.
        if self._config.is_program() or self._key != "warmup_start":
            return PARTS[self._key][0] if self._key else ""
        return "compiling" if self._config.compiled() else "warming up"

    def words(self, now_ms: int) -> str:
        """`40 s so far; about 60 s the first time`, the second part only with an estimate; empty outside a start."""
        sec = (now_ms - self._since_ms) / 1e3
        if not self._key or sec < SHOWN_SEC:
            return ""
        estimate = self._estimate()
        return f"{sec:.0f} s so far" + (f"; {estimate}" if estimate else "")

    def line(self, now_ms: int) -> str:
        """The part and its time, when the time has passed the next threshold; else empty."""
        if not self._key or now_ms - self._since_ms < 1e3 * self._next_line_sec:
            return ""
        while now_ms - self._since_ms >= 1e3 * self._next_line_sec:
            self._next_line_sec *= 2
        return f"{self.part}, {self.words(now_ms)}"

    def _estimate(self) -> str:
        """The part's time in earlier runs; empty if not known, and for a part that is repeated."""
        key = PARTS[self._key][1]
        if not key or self._key in self._ended_parts:
            return ""
        if self._starts is None:
            self._starts = []  # A failed read is not tried again.
            self._starts = self._read(Path(self._config.runs_dir))
        starts = [start for start in self._starts if self._is_alike(start)]
        if self._key != "warmup_start" or not self._config.compiled():
            return about(key, starts)
        cold = self._is_cold(starts)
        return about(key, [start for start in starts if start.is_cold == cold], " the first time" if cold else "")

    def _is_alike(self, start: EarlierStart) -> bool:
        """Whether the known parts of model, stack and hardware are the same."""
        config = self._config
        facts = {"model": config.model.name, "stack": config.stack.name, quantities.WORLD_SIZE: config.world_size()}
        facts |= {"compile": config.compiled()}
        facts |= {
            name: self._tags[f"env.{name}"] for name in ("stack_id", "hardware_id") if f"env.{name}" in self._tags
        }
        return all(start.facts.get(name) == value for name, value in facts.items())

    def _is_cold(self, starts: Sequence[EarlierStart]) -> bool:
        """Whether a full compilation is expected: an empty cache, or no earlier run with the same steps."""
        steps = {"precision": self._config.precision.name, "batch_size": self._config.device_batch_size()}
        known = any(all(start.facts.get(name) == value for name, value in steps.items()) for start in starts)
        return self._num_cached == 0 or not known


def about(key: str, starts: Sequence[EarlierStart], behind: str = "") -> str:
    """`about 60 s`: the median of the starts in which the part was long enough to be shown; empty without one.

    Forked workers have finished their imports, so their line does not mention an import.
    """
    seconds = [sec for start in starts if (sec := start.seconds.get(key, 0.0)) >= SHOWN_SEC]
    return f"about {statistics.median(seconds):.0f} s{behind}" if seconds else ""
