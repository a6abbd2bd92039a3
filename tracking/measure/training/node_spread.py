"""Step times of a run by machine, to name a slow one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracking.measure.training.throughput import Window


def by_node(windows: Sequence[Window], names: Sequence[str]) -> list[dict[str, Any]]:
    """For each node, the mean step time in ms of its slowest rank, and the share of it that the rank waited for data.

    `names` is each rank's machine. The slowest node comes first. [] for one machine, or without windows. Ranks wait for
    each other in the exchange of gradients, so step times differ less than the machines do.
    """
    steps = sum(len(window.step_sec) for window in windows)
    if len(set(names)) < 2 or not steps:
        return []
    rows = []
    for node in dict.fromkeys(names):
        ranks = [rank for rank, name in enumerate(names) if name == node]
        seconds = {rank: sum(window.rank_sec[rank] for window in windows) for rank in ranks}
        waits = {rank: sum(window.rank_wait_sec[rank] for window in windows) for rank in ranks}
        slowest = max(ranks, key=lambda rank: seconds[rank])
        wait = waits[slowest] / seconds[slowest]
        rows.append({"node": node, "step_ms": 1e3 * seconds[slowest] / steps, "data_wait_fraction": wait})
    return sorted(rows, key=lambda row: -row["step_ms"])
