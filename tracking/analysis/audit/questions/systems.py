"""Recompute the table of systems from the fingerprints in run folders."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import combinations, zip_longest
from typing import Any

from tracking.analysis.audit.evidence import Content, Rows
from tracking.analysis.audit.journals import JournalFigures, file_content
from tracking.base import quantities

PAIR = quantities.CEILINGS_SLOWEST_PAIR_MEGABYTES_PER_SEC
NEAREST = ["PIX", "PXB", "PHB", "NODE", "SYS"]
MOST_FILES = 60


def systems(content: Content) -> Rows:
    """A row per kind of machine, in order of their cells; empty for a single kind."""
    evidence = content.evidence
    machines: dict[tuple[str, ...], list[JournalFigures]] = {}
    for workload in evidence.workloads():
        for setting in evidence.settings(workload):
            for run in sorted(evidence.ended(workload, setting).values(), key=lambda run: run.created_ms):
                machine = tuple(str(run.tags.get(f"env.{key}") or "") for key in ("gpu", "cpu", "node"))
                machines.setdefault(machine, []).append(run)
    kinds: dict[tuple[str, ...], list[JournalFigures]] = {}
    turns = [run for turn in zip_longest(*machines.values()) for run in turn if run is not None][:MOST_FILES]
    read = {
        str(run.folder): tuple(_machine(file_content(run.folder / "fingerprint.json")).values())
        for run in turns
        if _has_one(run)
    }
    for runs in machines.values():
        described = [read[str(run.folder)] for run in runs if str(run.folder) in read]
        for run in runs if described else ():
            kinds.setdefault(read.get(str(run.folder), described[0]), []).append(run)
    if len(kinds) < 2:
        return {}
    rows: Rows = {}
    copies = {facts: _copy(runs) for facts, runs in kinds.items()}
    for number, facts in enumerate(sorted(kinds)):
        name = chr(65 + number % 26) if number < 26 else chr(64 + number // 26) + chr(65 + number % 26)
        row: dict[str, Any] = {
            "system": name,
            "runs": str(len(kinds[facts])),
            **dict(zip(_HEADINGS, facts, strict=True)),
        }
        rows[name] = row | ({quantities.quantity(PAIR).heading: copies[facts]} if any(copies.values()) else {})
    return rows


_HEADINGS = (
    "GPUs", "form factor", "memory of a GPU (GiB)", "power limit (W)", "slowest pair", "GPUs by CPU affinity", "CPU",
    "network cards",
)  # fmt: skip


def _has_one(run: JournalFigures) -> bool:
    return "host" in file_content(run.folder / "fingerprint.json")


def _machine(facts: Mapping[str, Any]) -> dict[str, str]:
    gpus = facts.get("gpus") or []
    links = facts.get("topology", {}).get("links", {})
    cores = facts.get("topology", {}).get("cpu_affinity", {})
    names = [str(gpu.get("name", "unknown GPU")) for gpu in gpus]
    forms = {re.sub("(?i)pcie", "PCIe", form.upper()) for name in names
             for form in re.findall(r"(?i)\b(?:SXM\d?|PCIe|NVL)\b", name)[:1]}  # fmt: skip
    cards = [row for name, row in links.items() if name[:3] != "GPU"]
    near = sorted({NEAREST.index(link) for row in cards for link in row.values() if link in NEAREST})
    sizes = {gpu["memory_bytes"] / 1073741824 for gpu in gpus if "memory_bytes" in gpu}
    limits = {gpu["power_limit_watts"] for gpu in gpus if "power_limit_watts" in gpu}
    sockets, cpu = facts["host"].get("sockets"), facts["host"].get("cpu")
    values = (
        " + ".join(f"{names.count(name)} x {name}" for name in sorted({*names})),
        " + ".join(sorted(forms)),
        " + ".join(f"{size:.4g}" for size in sorted(sizes)),
        " + ".join(f"{limit:.4g}" for limit in sorted(limits)),
        _slowest([links.get(f"GPU{a['index']}", {}).get(f"GPU{b['index']}") for a, b in combinations(gpus, 2)]),
        _shares([cores.get(f"GPU{gpu['index']}") for gpu in gpus]),
        (f"{sockets} x " if sockets else "") + (cpu or ""),
        f"{len(cards)}, {NEAREST[near[0]]}" if near else str(len(cards) or ""),
    )
    return dict(zip(_HEADINGS, values, strict=True))


def _slowest(links: Sequence[str | None]) -> str:
    """The slowest link; "" if one is not known. Fewer bonded NVLinks are slower, and links over PCIe slower still."""
    if not links or not all(link and (link in NEAREST or re.fullmatch(r"NV\d+", link)) for link in links):
        return ""
    over_pcie = [link for link in links if link in NEAREST]
    return str(max(over_pcie, key=NEAREST.index) if over_pcie else min(links, key=lambda link: int(str(link)[2:])))


def _shares(cores: Sequence[str | None]) -> str:
    if not all(cores):
        return ""
    return "+".join(sorted((str(cores.count(each)) for each in {*cores}), key=int, reverse=True))


def _copy(runs: Sequence[JournalFigures]) -> str:
    known = [(int(run.tags.get("env.gpu_count", 0)), rate) for run in runs if (rate := run.value(PAIR)) is not None]
    rates = [rate for count, rate in known if count == max(known)[0]]
    words = [f"{rate:,.0f}" for rate in (min(rates), max(rates))] if rates else []
    return " to ".join(words if len({*words}) > 1 else words[:1])
