"""A report's machines side by side: GPUs, links, sockets and network cards."""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from tracking.analysis.compare import Task
from tracking.analysis.results import Run, Runs, Table
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
