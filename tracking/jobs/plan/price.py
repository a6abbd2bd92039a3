"""Estimates of the time, GPU-hours and cost of jobs, from earlier runs."""

from __future__ import annotations

import heapq
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from conf.schema import RunConfig
from tracking.jobs.plan.earlier_runs import EarlierRun, Place, RunRequest

ONE_RUN = 0.5  # relative half-width of the range from a single run, whose spread is unknown
MANY = 5  # with this many runs or more, the range is the 10th to 90th percentile; with fewer, minimum to maximum
OTHER_SETTINGS, OTHER_BATCH = "of other settings", "of another batch size"


class Range(NamedTuple):
    low: float
    middle: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """The wall time of a job in seconds, from `num_runs` earlier runs. `of` says how their settings differ."""

    seconds: Range
    num_runs: int
    of: str = ""


@dataclass(frozen=True)
class Price:
    """Total of several jobs. `gpu_hours` is None without GPUs, `usd` without a price."""

    seconds: Range
    gpu_hours: Range | None
    usd: Range | None


def estimate(config: RunConfig, place: Place, runs: Sequence[EarlierRun], imports: bool = False) -> Estimate | None:
    """The time of a job at a place, from the most similar earlier `runs` (newest first); None if no run is similar.

    `imports`: whether the job waits for imports. That time is estimated from the runs that waited too, since a short
    run may import for as long as it trains. Unknown parts of the place are taken from the newest similar run. The stack
    is unknown to a launcher until the worker has loaded it.
    """
    request = RunRequest.of(config)
    comparable = [run for run in runs if place.may_be(run.place) and run.request.work == request.work]
    comparable = [run for run in comparable if run.place == comparable[0].place]
    same_batch = [run for run in comparable if run.request.batch_size == request.batch_size]
    same = [run for run in same_batch if run.request.setting == request.setting]
    if not comparable:
        return None
    chosen = same or same_batch
    chosen = [run for run in chosen if not run.is_cold] or chosen  # The cache now holds what cold runs compiled.
    chosen = chosen or comparable
    import_sec = statistics.median([run.import_sec for run in comparable if run.has_imported == imports] or [0.0])
    seconds = spread([run.seconds - run.import_sec + import_sec for run in chosen])
    return Estimate(seconds, len(chosen), "" if same else OTHER_SETTINGS if same_batch else OTHER_BATCH)


def must_import(configs: Sequence[RunConfig]) -> list[bool]:
    """For each job of a launch, whether it waits for imports.

    The first jobs of each stack wait, as many as run at once. Later jobs are forked. Jobs on a cluster or on several
    nodes all wait.
    """
    num_before, flags = Counter[str](), list[bool]()
    for config in configs:
        is_first = num_before[config.stack.name] < max(1, config.sweep.jobs_at_once)
        flags.append(is_first or config.cluster.kind != "none" or config.nodes > 1)
        num_before[config.stack.name] += 1
    return flags


def spread(seconds: Sequence[float]) -> Range:
    """The median, with a range that depends on the number of values (ONE_RUN, MANY)."""
    middle = statistics.median(seconds)
    if len(seconds) == 1:
        return Range(middle * (1 - ONE_RUN), middle, middle * (1 + ONE_RUN))
    if len(seconds) < MANY:
        return Range(min(seconds), middle, max(seconds))
    tenths = statistics.quantiles(seconds, n=10, method="inclusive")
    return Range(tenths[0], middle, tenths[-1])


def price(jobs: Sequence[tuple[RunConfig, Estimate]]) -> Price:
    """Total of one job or more, run as many at once as their sweep allows.

    The ends of ranges are summed, since errors of similar jobs are correlated. Each job pays its nodes for its own
    time.
    """
    times = [(config, estimate.seconds) for config, estimate in jobs]
    on_gpus = [(config.num_gpus() * config.nodes, seconds) for config, seconds in times if config.on_gpu()]
    paid = [
        (config.instance.price_per_hour * config.nodes, seconds)
        for config, seconds in times
        if config.instance.price_per_hour is not None
    ]
    wall = (sweep_sec([(config, seconds[end]) for config, seconds in times]) for end in range(3))
    return Price(Range(*wall), _per_hour(on_gpus), _per_hour(paid))


def _per_hour(jobs: Sequence[tuple[float, Range]]) -> Range | None:
    sums = (math.fsum(rate * seconds[end] / 3600 for rate, seconds in jobs) for end in range(3))
    return Range(*sums) if jobs else None


def sweep_sec(jobs: Sequence[tuple[RunConfig, float]]) -> float:
    """The wall time of jobs of these seconds. A search explores several at once, then runs one at a time."""
    by_at_once: dict[int, list[float]] = {}
    for config, seconds in jobs:
        by_at_once.setdefault(config.sweep.jobs_at_once, []).append(seconds)
    return math.fsum(wall_sec(seconds, at_once) for at_once, seconds in by_at_once.items())


def wall_sec(seconds: Sequence[float], at_once: int) -> float:
    """Seconds until the last job has ended; a job begins as soon as fewer than `at_once` run."""
    ends = [0.0] * max(1, at_once)
    for each in seconds:
        heapq.heapreplace(ends, ends[0] + each)
    return max(ends)
