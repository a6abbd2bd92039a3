"""What jobs will take, in time, GPU-hours and dollars, as far as earlier runs tell."""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from conf.schema import RunConfig
from tracking.jobs.plan.earlier_runs import Asked, EarlierRun, Place

ONE_RUN = 0.5  # A single run says its time to so large a part of it, for want of a spread.
MANY = 5  # Of so many runs the range leaves out the tenth at either end; of fewer it is their whole range.
OTHER_SETTINGS, OTHER_BATCH = "of other settings", "of another batch size"


class Range(NamedTuple):
    low: float
    middle: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """The wall time of a job in seconds, from `num_runs` earlier ones. `of` says how their settings differ from it."""

    seconds: Range
    num_runs: int
    of: str = ""


@dataclass(frozen=True)
class Price:
    """What several jobs take together; None without GPUs, or without a price."""

    seconds: Range
    gpu_hours: Range | None
    usd: Range | None


def estimate(config: RunConfig, place: Place, runs: Sequence[EarlierRun]) -> Estimate | None:
    """The time of a job at a place, from the most similar of the earlier `runs` (newest first); None without any.

    Where the place is not known, it is that of the newest run, as is the stack, which a launcher cannot tell before the
    worker has loaded it.
    """
    asked = Asked.of(config)
    alike = [run for run in runs if place.may_be(run.place) and run.asked.work == asked.work]
    alike = [run for run in alike if run.place == alike[0].place]
    same_batch = [run for run in alike if run.asked.batch_size == asked.batch_size]
    same = [run for run in same_batch if run.asked.setting == asked.setting]
    if not alike:
        return None
    if not same_batch:
        return Estimate(spread([run.seconds for run in alike]), len(alike), OTHER_BATCH)
    chosen = same or same_batch
    chosen = [run for run in chosen if not run.is_cold] or chosen  # By now the cache has what they compiled.
    return Estimate(spread([run.seconds for run in chosen]), len(chosen), "" if same else OTHER_SETTINGS)


def spread(seconds: Sequence[float]) -> Range:
    """The median, with a range by the number of values."""
    middle = statistics.median(seconds)
    if len(seconds) == 1:
        return Range(middle * (1 - ONE_RUN), middle, middle * (1 + ONE_RUN))
    if len(seconds) < MANY:
        return Range(min(seconds), middle, max(seconds))
    tenths = statistics.quantiles(seconds, n=10, method="inclusive")
    return Range(tenths[0], middle, tenths[-1])


def price(jobs: Sequence[tuple[RunConfig, Estimate]]) -> Price:
    """What at least one job takes, as many at once as their sweep has. The ends of ranges add up, as errors are alike.

    Dollars are the price of a node for the time of each job.
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
    """The wall time of jobs of these seconds. A search has several at once while it explores, and then one."""
    by_at_once: dict[int, list[float]] = {}
    for config, seconds in jobs:
        by_at_once.setdefault(config.sweep.jobs_at_once, []).append(seconds)
    return math.fsum(wall_sec(seconds, at_once) for at_once, seconds in by_at_once.items())


def wall_sec(seconds: Sequence[float], at_once: int) -> float:
    """The time until the last of the jobs has ended; each begins as soon as fewer than `at_once` run."""
    ends = [0.0] * max(1, at_once)
    for each in seconds:
        heapq.heapreplace(ends, ends[0] + each)
    return max(ends)
