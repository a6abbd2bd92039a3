"""Traffic of storage and network, summed over nodes, by the number of nodes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from tracking.analysis.compare import Estimate, Setting, Task
from tracking.analysis.results import Cell, Run, Table
from tracking.analysis.statistics import mean_and_standard_error

KINDS = {"storage": "disk|network_files", "network": "network|infiniband"}
WHAT = {"total (MB)": "total_megabytes", "peak (MB/s)": "peak_megabytes_per_sec"}
NOTE = (
    "Summed over nodes, means over runs; a peak is the sum of the peaks of nodes and directions, which may lie at"
    " different moments. Storage: disks and network files, read and written. Network: Ethernet and InfiniBand, in and"
    " out, so a byte between two nodes counts twice, and a byte of a network file counts as storage and as network."
    " Doubling: the factor that doubling the nodes brings, from the fewest on."
)


def traffic_table(tasks: Sequence[Task]) -> Table | None:
    """The table of settings that differ only in their number of nodes; None without any, or without traffic."""
    rows: list[list[Cell]] = []
    for task in tasks:
        groups: dict[tuple[tuple[str, str], ...], dict[int, Setting]] = {}
        for setting in task.settings:
            counts = {run.params.get("nodes", "") for run in setting.trained}
            if len(counts) == 1 and (count := counts.pop()).isdecimal():
                rest = tuple((axis, value) for axis, value in setting.labels.items() if axis != "nodes")
                groups.setdefault(rest, {})[int(count)] = setting
        for by_nodes in groups.values():
            if len(by_nodes) > 1:
                fewest = by_nodes[min(by_nodes)]
                rows += [_row(task, nodes, by_nodes[nodes], min(by_nodes), fewest) for nodes in sorted(by_nodes)]
    if not any(any(row[3:]) for row in rows):
        return None
    headings = [
        words for kind in KINDS for suffix in WHAT for words in (f"{kind} {suffix}", f"{kind} {suffix}, doubling")
    ]
    columns = dict.fromkeys(["workload", "setting", "nodes", *headings], "")
    return Table("Traffic over nodes", columns, rows, NOTE, "traffic")


def _row(task: Task, nodes: int, setting: Setting, least: int, fewest: Setting) -> list[Cell]:
    rest = " ".join(f"{axis}={value}" for axis, value in setting.labels.items() if axis != "nodes")
    row: list[Cell] = [task.title, rest, str(nodes)]
    for kind in KINDS.values():
        for suffix in WHAT.values():
            traffic, first = _mean(setting, kind, suffix), _mean(fewest, kind, suffix)
            row += [traffic.text() if traffic else "", _doubling(traffic, first, nodes / least)]
    return row


def _doubling(traffic: Estimate | None, first: Estimate | None, growth: float) -> str:
    """The factor that a doubling of the nodes brings; "" if they did not grow, or nothing moved."""
    if traffic is None or first is None or growth <= 1 or min(traffic.mean, first.mean) <= 0:
        return ""
    return f"{(traffic.mean / first.mean) ** (1 / math.log2(growth)):.2f}"


def _mean(setting: Setting, kind: str, suffix: str) -> Estimate | None:
    sums = [total for run in setting.trained if (total := _sum(run, kind, suffix)) is not None]
    return Estimate(*mean_and_standard_error(sums), len(sums)) if sums else None


def _sum(run: Run, kind: str, suffix: str) -> float | None:
    """A run's traffic, summed over nodes and directions; None if the run did not record it."""
    key = re.compile(rf"traffic/(?:[^/]+/)?(?:{kind})_(?:read|write|receive|transmit)_{suffix}")
    amounts = [value for name, value in run.metrics.items() if key.fullmatch(name)]
    return sum(amounts) if amounts else None
