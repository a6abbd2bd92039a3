"""What a sweep cost: the machine is paid for while a job fails, compiles or is stopped, too."""

from __future__ import annotations

import math
from pathlib import Path

from conf import schema
from tracking.run import journal, run_folder


def spent_usd(sweep: Path) -> float | None:
    """Price an hour x nodes x time from the first to the last record of every job's journal, in USD.

    Failed jobs count, and so do all attempts of jobs that were resumed. None where no job has a price.
    """
    costs = [job_usd(path.parent) for path in sorted(sweep.glob(f"*/{run_folder.CONFIG}"))]
    known = [cost for cost in costs if cost is not None]
    return math.fsum(known) if known else None


def job_usd(folder: Path) -> float | None:
    """The cost of one attempt; None without a price."""
    config = schema.load(folder / run_folder.CONFIG)
    if config.instance.price_per_hour is None:
        return None
    clock_sec = [record.clock_sec for record, _ in journal.read(folder / run_folder.JOURNAL, 0)]
    seconds = max(clock_sec) - min(clock_sec) if clock_sec else 0.0
    return seconds / 3600 * config.instance.price_per_hour * config.nodes
