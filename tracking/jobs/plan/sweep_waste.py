"""Time, energy and cost of a sweep's failed, stopped and repeated runs, which no mean counts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from tracking.base import quantities
from tracking.base.number_text import counted, significant
from tracking.jobs.plan import sweep_cost
from tracking.record import Record, attempts, documents, failures, files, journal, node_records, run_folder

NAME = "waste.json"
FAILED, STOPPED, REPEATED = "failed", "stopped", "repeated"
POWER = re.compile(rf"{quantities.SYSTEM}(?:[^/]+/)?gpu_\d+_power_usage_watts")
HOST = re.compile(rf"{quantities.SYSTEM}(?:[^/]+/)?host_joules")
JOULES_PER_KWH = 3.6e6
MAX_GAP = 20  # largest gap between two samples of one attempt, in median intervals


@dataclass
class Spent:
    """Time, energy and cost of `num_runs` runs. Energy and cost are None if not known for any run.

    `num_unmeasured` counts the runs, or parts of runs, whose energy is not known.
    """

    num_runs: int = 0
    sec: float = 0.0
    kwh: float | None = None
    usd: float | None = None
    num_unmeasured: int = 0

    def add(self, other: Spent) -> None:
        self.num_runs += other.num_runs
        self.sec += other.sec
        self.num_unmeasured += other.num_unmeasured
        self.kwh, self.usd = (
            total if more is None else (total or 0.0) + more
            for total, more in ((self.kwh, other.kwh), (self.usd, other.usd))
        )

    def __str__(self) -> str:
        parts = [f"{self.sec:,.0f} s"]
        without = f" (not known: {counted(self.num_unmeasured, 'run')})" if self.num_unmeasured else ""
        parts += [] if self.kwh is None else [f"{significant(self.kwh)} kWh{without}"]
        parts += [] if self.usd is None else [f"{self.usd:,.2f} USD"]
        return ", ".join(parts)


def write(sweep: Path) -> dict[str, Spent]:
    """Write the sweep's spending by kind (and `all`) into its folder; returns it. Raises OSError."""
    spent = by_kind(sweep)
    documents.write_json(sweep / NAME, {kind: asdict(each) for kind, each in spent.items()})
    return spent


def words(spent: dict[str, Spent]) -> str:
    """`spent in vain: 1 failed (12 s), 1 stopped (9 s); 2 of 6 runs, 60 s`; empty if every run counts."""
    kinds = {kind: spent[kind] for kind in (FAILED, STOPPED, REPEATED) if spent[kind].sec}
    parts = [f"{each.num_runs} {kind} ({each})" if each.num_runs else f"{kind} parts ({each})"
             for kind, each in kinds.items()]  # fmt: skip
    number = sum(each.num_runs for each in kinds.values())
    whole = spent["all"]
    return f"spent in vain: {', '.join(parts)}; {number} of {counted(whole.num_runs, 'run')}, {whole}" if parts else ""


def by_kind(sweep: Path) -> dict[str, Spent]:
    """Spending by kind. A run is repeated if a later folder has the same config.

    The part of a resumed run that was trained twice counts as repeated too.
    """
    spent = {kind: Spent() for kind in ("all", FAILED, STOPPED, REPEATED)}
    later: set[str] = set()
    usd_by_job = sweep_cost.usd_by_job(sweep)
    for folder in reversed(files.folders(sweep, run_folder.CONFIG)):
        with suppress(OSError, ValueError):  # `sync` says what is wrong with a folder
            config, result = run_folder.read_config(folder), run_folder.read_result(folder)
            config_hash, is_alone = config.config_hash(), config.sweep.jobs_at_once == 1
            sec, usd = journal.span_sec(folder / run_folder.JOURNAL), usd_by_job.get(folder)
            energy = kwh(folder, is_alone, config.on_gpu())
            run = Spent(1, sec, energy, usd, int(energy is None))
            spent["all"].add(run)
            failure = result.failure if result else None
            lost_sec = result.metrics.get(quantities.RESUME_LOST_SEC, 0.0) if result else 0.0
            if config_hash in later:
                spent[REPEATED].add(run)
            elif failure or result is None:
                spent[STOPPED if failure and failure.kind in failures.STOP_CAUSES else FAILED].add(run)
            elif lost_sec and run.sec:
                spent[REPEATED].add(part(run, min(1.0, lost_sec / run.sec)))
            later.add(config_hash)
    return spent


def part(whole: Spent, share: float) -> Spent:
    """A share of one run's spending; the run itself is not counted."""
    kwh, usd = (None if value is None else share * value for value in (whole.kwh, whole.usd))
    return Spent(0, share * whole.sec, kwh, usd, whole.num_unmeasured)


def kwh(folder: Path, is_alone: bool = True, on_gpu: bool = False) -> float | None:
    """Energy in kWh on all nodes, from GPU power samples and host energy counters; None without samples.

    A host's counter covers the whole machine, so it counts only if the run `is_alone` there. A run on GPUs needs power
    samples, too.
    """
    joules: list[float] = []
    has_power = False
    for file in [run_folder.JOURNAL, *node_records.other_journals(folder)]:
        for attempt in attempts.split([record for record, _ in journal.read(folder / file)]):
            samples = [record for record in attempt if record.kind == "metrics"]
            has_power |= any(POWER.fullmatch(key) for sample in samples for key in sample.values)
            joules += amounts(samples, is_alone)
    return math.fsum(joules) / JOULES_PER_KWH if joules and (has_power or not on_gpu) else None


def amounts(records: list[Record], is_alone: bool) -> Iterator[float]:
    """Joules between consecutive samples of a node: a power sample covers the time before it.

    Skips gaps above MAX_GAP median intervals: non-head nodes do not record a resume.
    """
    for pattern, is_power in ((POWER, True), (HOST, False)) if is_alone else ((POWER, True),):
        samples = [(record.clock_sec, sum(value for key, value in record.values.items() if pattern.fullmatch(key)))
                   for record in records if any(map(pattern.fullmatch, record.values))]  # fmt: skip
        pairs = list(pairwise(samples))
        longest_sec = MAX_GAP * median(now - before for (before, _), (now, _) in pairs) if pairs else 0.0
        for (before, low), (now, high) in pairs:
            if now - before <= longest_sec:
                yield max(0.0, high * (now - before) if is_power else high - low)
