"""The links between GPUs, parsed from `nvidia-smi topo -m` and `nvidia-smi nvlink -s`.

The class of a set of GPUs is that of its slowest pair, since a collective waits for it. From fast to slow:
NV# (# bonded NVLinks), PIX (one PCIe bridge), PXB (several), PHB (the host bridge), NODE (host bridges of one NUMA
node) and SYS (between NUMA nodes), as in nvidia-smi's legend.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

_PCIE_CLASSES = ("PIX", "PXB", "PHB", "NODE", "SYS")  # fastest first
_OLD_NAMES = {"SOC": "SYS"}  # old drivers' name of the link between NUMA nodes
_TERMINAL_CODES = re.compile(r"\x1b\[[0-9;]*m")  # some drivers underline the header, even into a file

Links = Mapping[str, Mapping[str, str]]


def parse_matrix(text: str) -> dict[str, Any]:
    """The matrix from the output of `nvidia-smi topo -m`; {} without a matrix.

    `links` has a row for each GPU and network card ({"GPU0": {"GPU1": "NV18", "NIC0": "PIX"}}, without the cell to
    itself). `cpu_affinity` and `numa_node` have the GPUs for which the driver knows them ({"GPU0": "0-63"}).
    """
    lines = _TERMINAL_CODES.sub("", text).splitlines()
    header = next((number for number, line in enumerate(lines) if re.match(r"\s+(GPU|NIC|mlx)\S*\d\s", line)), None)
    if header is None:
        return {}
    names = lines[header].partition("CPU Affinity")[0].split()
    matrix: dict[str, Any] = {"links": {}, "cpu_affinity": {}, "numa_node": {}}
    for line in lines[header + 1 :]:
        name, *cells = line.split()[: len(names) + 1] or [""]
        if name not in names or len(cells) < len(names):
            break  # the empty line before the legend
        matrix["links"][name] = {
            other: _OLD_NAMES.get(cell, cell) for other, cell in zip(names, cells, strict=True) if other != name
        }
        # Only tabs distinguish an empty affinity cell from a missing one.
        affinity = [cell.strip() for cell in line.split("\t")[len(names) + 1 :]]
        for key, cell in zip(("cpu_affinity", "numa_node"), affinity, strict=False):
            if re.fullmatch(r"[\d,-]+", cell):
                matrix[key][name] = cell
    return {key: rows for key, rows in matrix.items() if rows}


def classify(links: Links, indices: Sequence[int | None]) -> str | None:
    """The class of the GPUs with these nvidia-smi indices: "none" for no GPU, "single" for one, else the slowest pair.

    None if a pair's link is not known, as for two MIG devices of one GPU.
    """
    if len(indices) < 2:
        return "single" if indices else "none"
    pairs = [links.get(f"GPU{a}", {}).get(f"GPU{b}", "") for a, b in combinations(indices, 2)]
    ranks = [_rank(link) for link in pairs]
    if None in ranks:
        return None
    return max(zip(ranks, pairs, strict=True))[1]


def _rank(link: str) -> int | None:
    """A rank of a link, higher is slower; None for a label that is not in the legend."""
    if match := re.fullmatch(r"NV(\d+)", link):
        return -int(match[1])
    return _PCIE_CLASSES.index(link) + 1 if link in _PCIE_CLASSES else None


def parse_nvlink(text: str) -> dict[int, dict[str, Any]]:
    """For each GPU index the number of active links and the speed of the slowest, from `nvidia-smi nvlink -s`.

    `nvlink_gb_per_sec` is in GB/s of one link in one direction, as the driver reports it. A GPU without active
    links has `nvlink_links` 0 and no speed.
    """
    speeds: dict[int, list[float]] = {}
    for line in text.splitlines():
        if match := re.match(r"GPU (\d+):", line):
            speeds[int(match[1])] = []
        elif speeds and (match := re.match(r"\s+Link \d+: ([\d.]+) GB/s", line)):
            speeds[max(speeds)].append(float(match[1]))
    return {
        index: {"nvlink_links": len(active)} | ({"nvlink_gb_per_sec": min(active)} if active else {})
        for index, active in speeds.items()
    }


def by_affinity(cpu_affinity: Mapping[str, str], indices: Sequence[int | None]) -> str | None:
    """How the GPUs with these nvidia-smi indices are divided over the sockets' cores: "4" at one socket, "2+2" at two.

    None without GPUs, and if the driver does not know the affinity of each.
    """
    cores = [cpu_affinity.get(f"GPU{index}") for index in indices]
    if not cores or None in cores:
        return None
    return "+".join(map(str, sorted(Counter(cores).values(), reverse=True)))
