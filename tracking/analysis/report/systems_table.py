"""A report's machines side by side: GPUs, links, sockets, network cards, and the traffic that runs had on them."""

from __future__ import annotations

import json
import math
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from tracking.analysis.compare import Estimate, Setting, Task
from tracking.analysis.results import Cell, Run, Runs, Table
from tracking.analysis.statistics import mean_and_standard_error
from tracking.base import quantities
from tracking.machine.environment import topology

PAIR = quantities.CEILINGS_SLOWEST_PAIR_MEGABYTES_PER_SEC
FORM = re.compile(r"\b(SXM\d?|PCIe|NVL)\b", re.IGNORECASE)
MOST_FILES = 60  # fingerprints to read: the first run of each machine, then the second, and so on
COLUMNS = (
    "system", "runs", "GPUs", "form factor", "memory of a GPU (GiB)", "power limit (W)", "slowest pair",
    "GPUs by CPU affinity", "CPU", "network cards",
)  # fmt: skip
NOTE = (
    "The whole machine, as its driver tells it; blank: not told. Slowest pair: the class of the"
    " slowest link between two GPUs (nvidia-smi's words). Copy: between the slowest pair in use, of the runs on most"
    " GPUs. GPUs by CPU affinity: how many stand at the same cores. Network cards: with the nearest link to a GPU."
)
KINDS = {"storage": "disk|network_files", "network": "network|infiniband"}
WHAT = {"total (MB)": "total_megabytes", "peak (MB/s)": "peak_megabytes_per_sec"}
TRAFFIC_NOTE = (
    "Summed over nodes, means over runs; a peak is the sum of the peaks of nodes and directions, which may lie at"
    " different moments. Storage: disks and network files, read and written. Network: Ethernet and InfiniBand, in and"
    " out, so a byte between two nodes counts twice, and a byte of a network file counts as storage and as network."
    " Doubling: the factor that doubling the nodes brings, from the fewest on."
)


def systems_table(store: Runs, tasks: Sequence[Task]) -> Table | None:
    """The table with a row for each kind of machine; None for a single kind."""
    of_machines: dict[tuple[str, ...], list[Run]] = {}
    for run in (run for task in tasks for setting in task.settings for run in setting.trained):
        of_machines.setdefault(tuple(run.tags.get(f"env.{key}", "") for key in ("gpu", "cpu", "node")), []).append(run)
    systems: dict[tuple[str, ...], list[Run]] = {}
    turns = [run for turn in zip_longest(*of_machines.values()) for run in turn if run is not None]
    read = {run.id: facts for run in turns[:MOST_FILES] if (facts := _facts(store, run))}
    for runs in of_machines.values():
        described = [read[run.id] for run in runs if run.id in read]
        for run in runs if described else ():
            systems.setdefault(read.get(run.id, described[0]), []).append(run)
    if len(systems) < 2:
        return None
    copied = {facts: _copied(runs) for facts, runs in systems.items()}
    columns = [*COLUMNS, *([quantities.quantity(PAIR).heading] if any(copied.values()) else [])]
    rows = []
    for letter, facts in zip(_letters(), sorted(systems), strict=False):
        extra = [copied[facts]] if any(copied.values()) else []
        rows.append([letter, str(len(systems[facts])), *facts, *extra])
    return Table("Systems", dict.fromkeys(columns, ""), rows, NOTE, "systems")


def _letters() -> list[str]:
    return [first + second for first in ("", *string.ascii_uppercase) for second in string.ascii_uppercase]


def _facts(store: Runs, run: Run) -> tuple[str, ...] | None:
    """The cells of a run's machine; None if its fingerprint is missing or incomplete."""
    try:
        return cells(json.loads(store.text(run, "fingerprint.json")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def cells(fingerprint: Mapping[str, Any]) -> tuple[str, ...]:
    """The cells of a fingerprint's machine. Raises KeyError without a host."""
    gpus, matrix = fingerprint.get("gpus", []), fingerprint.get("topology", {})
    names = Counter(gpu.get("name", "unknown GPU") for gpu in gpus)
    links = matrix.get("links", {})
    indices = [gpu.get("index") for gpu in gpus]
    cards = [name for name in links if not name.startswith("GPU")]
    near = min((link for name in cards for link in links[name].values() if link in NEARNESS), key=NEARNESS.index,
               default="")  # fmt: skip
    return (
        " + ".join(f"{number} x {name}" for name, number in sorted(names.items())),
        _each(sorted({match[1].upper().replace("PCIE", "PCIe") for name in names if (match := FORM.search(name))})),
        _each(sorted({gpu["memory_bytes"] / 2**30 for gpu in gpus if "memory_bytes" in gpu})),
        _each(sorted({gpu["power_limit_watts"] for gpu in gpus if "power_limit_watts" in gpu})),
        (topology.classify(links, indices) or "") if len(gpus) > 1 else "",
        topology.by_affinity(matrix.get("cpu_affinity", {}), indices) or "",
        " ".join(filter(None, [_sockets(fingerprint["host"]), fingerprint["host"].get("cpu", "")])),
        ", ".join(filter(None, [str(len(cards)), near])) if cards else "",
    )


NEARNESS = ("PIX", "PXB", "PHB", "NODE", "SYS")  # nearest first


def _each(values: Sequence[str | float]) -> str:
    return " + ".join(value if isinstance(value, str) else f"{value:.4g}" for value in values)


def _sockets(host: Mapping[str, Any]) -> str:
    return f"{host['sockets']} x" if host.get("sockets") else ""


def _copied(runs: Sequence[Run]) -> str:
    """The measured copy rates of the slowest pair, lowest to highest, of the runs on the most GPUs."""
    copies = [(int(run.tags.get("env.gpu_count", "0")), run.metrics[PAIR]) for run in runs if PAIR in run.metrics]
    most = max((count for count, _ in copies), default=0)
    rates = [f"{rate:,.0f}" for rate in sorted(rate for count, rate in copies if count == most)]
    return " to ".join(dict.fromkeys([rates[0], rates[-1]])) if rates else ""


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
    return Table("Traffic over nodes", columns, rows, TRAFFIC_NOTE, "traffic")


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
