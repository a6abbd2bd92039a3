"""The main memory that is still available, by the machine and by the limits of control groups."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Files:
    """File names of a control group (cgroup-v2.rst and cgroup-v1/memory.rst in Linux's documentation)."""

    limit: str
    used: str
    reclaimable: str  # in memory.stat: file pages that the kernel drops first


V2 = Files("memory.max", "memory.current", "inactive_file")
V1 = Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def available_bytes(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """The bytes of main memory available to this process. Without psutil, which a stack's environment may lack."""
    lines = (proc / "meminfo").read_text(encoding="ascii").splitlines()
    machine = 1024 * int(dict(line.split(":", 1) for line in lines)["MemAvailable"].split()[0])
    return int(min([machine, *left_by_groups(proc / "self" / "cgroup", cgroups)]))


def left_by_groups(membership: Path, cgroups: Path) -> Iterator[float]:
    """The bytes below its limit of each control group around this process.

    A container may see its own group as the root, under another path than in `membership`.
    """
    with suppress(OSError, ValueError):
        paths = dict(line.split(":", 2)[1:] for line in membership.read_text(encoding="utf-8").splitlines())
        of_v1 = {path for names, path in paths.items() if "memory" in names.split(",")}
        for files, root, among in ((V2, cgroups, {paths.get("", "/")}), (V1, cgroups / "memory", of_v1)):
            for path in among:
                folder = root / path.lstrip("/")
                for group in (folder, *folder.parents):
                    if group.is_relative_to(root):
                        yield left_by(group, files)


def left_by(group: Path, files: Files) -> float:
    """The bytes below a group's limit; infinite without a known limit."""
    with suppress(OSError, ValueError):
        limit = (group / files.limit).read_text(encoding="ascii").strip()
        if limit == "max":
            return math.inf
        used = int((group / files.used).read_text(encoding="ascii"))
        rows = (group / "memory.stat").read_text(encoding="ascii").splitlines()
        dropped = int(dict(row.split() for row in rows).get(files.reclaimable, 0))
        return max(0, int(limit) - max(0, used - dropped))
    return math.inf
