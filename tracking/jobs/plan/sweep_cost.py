"""Costs of runs and sweeps in USD. Runs side by side on one node share its price."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from conf.schema import RunConfig
from tracking.record import files, journal, run_folder


def spent_usd(sweep: Path) -> float | None:
    """A sweep's cost in USD: the sum over its jobs. None if no job has a price."""
    spent = usd_by_job(sweep)
    return math.fsum(spent.values()) if spent else None


def usd_by_job(sweep: Path) -> dict[Path, float]:
    """USD of each job with a price, by folder: price an hour x nodes x time from first to last record of its journal.

    Failed jobs and all attempts of resumed jobs count, since the machine is paid for then too. Runs side by side share
    the price of their node.
    """
    alone, together = dict[Path, float](), dict[Path, tuple[float, tuple[float, float]]]()  # USD; (USD an hour, span)
    for job in files.folders(sweep, run_folder.CONFIG):
        with suppress(OSError, ValueError):  # `sync` says what is wrong with a folder
            config, (start, length) = run_folder.read_config(job), journal.span(job / run_folder.JOURNAL)
            price = config.instance.price_per_hour
            if price is not None and shares_node(config):
                together[job] = (price * config.nodes, (start, start + length))
            elif price is not None:
                alone[job] = length / 3600 * price * config.nodes
    parts = parts_of_time([when for _, when in together.values()])
    shared = {job: part / 3600 * price for part, (job, (price, _)) in zip(parts, together.items(), strict=True)}
    return alone | shared


def shares_node(config: RunConfig) -> bool:
    """Whether the price is for a node that several runs of the sweep may share."""
    return config.cluster.kind == "none" and config.price_per_gpu_hour is None


def parts_of_time(spans: Sequence[tuple[float, float]]) -> list[float]:
    """Seconds of each span (start, end), with overlapping time shared equally between the active spans.

    A span without an end counts up to the last end of another span.
    """
    moments = sorted({moment for span in spans for moment in span if math.isfinite(moment)})
    parts = [0.0] * len(spans)
    for start, end in pairwise(moments):
        active = [place for place, span in enumerate(spans) if span[0] <= start and end <= span[1]]
        for place in active:
            parts[place] += (end - start) / len(active)
    return parts
