"""Cuts a machine into equal shares of cores and GPUs, one for each of several jobs side by side.

Jobs still share caches, memory channels, power and disks, so such runs carry a tag.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from conf.schema import ConfigError
from tracking.jobs.handover import set_memory_policy

SYSTEM = Path("/sys/devices/system")
PCI = Path("/sys/bus/pci/devices")
CORES, MEMORY = "TIMETRIAL_CORES", "TIMETRIAL_NUMA_NODES"  # hold what a job's supervisor may use
MPOL_BIND = 2  # The number is from linux/mempolicy.h.


@dataclass(frozen=True)
class Core:
    """A core: its NUMA node, and the numbers of its hardware threads."""

    numa: int
    threads: tuple[int, ...]


@dataclass(frozen=True)
class Share:
    """What one job may use: hardware threads, the NUMA nodes that they belong to, and GPUs by UUID."""

    threads: tuple[int, ...]
    numa: tuple[int, ...]
    gpus: tuple[str, ...] = ()

    def __str__(self) -> str:
        gpus = f", {len(self.gpus)} GPU{'s' * (len(self.gpus) != 1)}" if self.gpus else ""
        return f"cores {ranges(self.threads)}, NUMA node {ranges(self.numa)}{gpus}"

    def environment(self) -> dict[str, str]:
        """The variables by which a supervisor learns its share."""
        variables = {CORES: ranges(self.threads), MEMORY: ranges(self.numa)}
        return variables | ({"CUDA_VISIBLE_DEVICES": ",".join(self.gpus)} if self.gpus else {})


def cut(number: int, cores: Sequence[Core], gpus: Mapping[str, int | None], gpus_each: int) -> list[Share]:
    """`number` equal shares. `gpus` holds each GPU's NUMA node by its UUID; None if unknown.

    A share's cores are adjacent. Its GPUs are on its own NUMA nodes, if these have enough. Raises ConfigError for too
    few cores or GPUs.
    """
    option = f"sweep.jobs_at_once={number}"
    if len(cores) < number:
        raise ConfigError(f"{option}: this machine has {len(cores)} cores, and each job needs one. Next: give fewer")
    if len(gpus) < number * gpus_each:
        raise ConfigError(
            f"{option}: {len(gpus)} GPUs are visible, but {number} jobs of gpus={gpus_each} need {number * gpus_each}."
            " Next: give fewer jobs, or fewer GPUs"
        )
    ordered = sorted(cores, key=lambda core: (core.numa, core.threads))
    each = len(cores) // number
    pieces = [ordered[each * place : each * (place + 1)] for place in range(number)]
    nodes = [tuple(sorted({core.numa for core in piece})) for piece in pieces]
    left, chosen = dict(gpus), []
    for near in nodes:
        uuids = [uuid for uuid, numa in left.items() if numa in near][:gpus_each]
        for uuid in uuids:
            del left[uuid]
        chosen.append(uuids)
    for uuids in chosen:
        while len(uuids) < gpus_each:
            uuid = next(iter(left))
            del left[uuid]
            uuids.append(uuid)
    return [
        Share(tuple(sorted(thread for core in piece for thread in core.threads)), numa, tuple(uuids))
        for piece, numa, uuids in zip(pieces, nodes, chosen, strict=True)
    ]


def joined(parts: Sequence[Share]) -> Share:
    """All of these shares as one."""
    return Share(
        tuple(sorted(thread for part in parts for thread in part.threads)),
        tuple(sorted({node for part in parts for node in part.numa})),
        tuple(uuid for part in parts for uuid in part.gpus),
    )


def nearest(free: Sequence[tuple[int, Share]], number: int) -> list[int] | None:
    """The indices of `number` free shares on the fewest NUMA nodes, sorted; None if too few are free."""
    ordered = sorted(free, key=lambda numbered: (numbered[1].numa, numbered[0]))
    windows = [ordered[place : place + number] for place in range(len(ordered) - number + 1)]
    best = min(windows, key=lambda window: len(joined([share for _, share in window]).numa), default=None)
    return sorted(place for place, _ in best) if best else None


def cores_here(system: Path = SYSTEM, usable: set[int] | None = None) -> list[Core]:
    """The cores that this process may use."""
    usable = os.sched_getaffinity(0) if usable is None else usable
    numa = {
        thread: int(path.name.removeprefix("node"))
        for path in system.glob("node/node[0-9]*")
        for thread in numbers((path / "cpulist").read_text(encoding="ascii"))
    }
    cores = set()
    for thread in usable:
        siblings = [thread]
        with suppress(OSError):  # a kernel without this file: each thread counts as a core
            path = system / f"cpu/cpu{thread}/topology/thread_siblings_list"
            siblings = numbers(path.read_text(encoding="ascii"))
        cores.add(Core(numa.get(thread, 0), tuple(sorted(usable.intersection(siblings)))))
    return list(cores)


def numa_of_pci(bus_id: str, devices: Path = PCI) -> int | None:
    """The NUMA node of a device by its bus id, 00000000:3B:00.0 as NVML has it; None if unknown."""
    domain, _, rest = bus_id.lower().partition(":")
    with suppress(OSError, ValueError):
        node = int((devices / f"{domain[-4:]}:{rest}" / "numa_node").read_text(encoding="ascii"))
        return node if node >= 0 else None
    return None


def numbers(text: str) -> list[int]:
    """The numbers of a list such as 0-3,8, as the kernel writes it."""
    parts = re.findall(r"(\d+)(?:-(\d+))?", text)
    return [number for first, last in parts for number in range(int(first), int(last or first) + 1)]


def ranges(values: Sequence[int]) -> str:
    """The inverse of `numbers`."""
    parts: list[list[int]] = []
    for value in sorted(values):
        if parts and value == parts[-1][1] + 1:
            parts[-1][1] = value
        else:
            parts.append([value, value])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in parts)


def engine_options(engine: str | None, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Options that keep a container to the share: it is a child of its engine, not of this process."""
    if CORES not in environ or engine not in ("docker", "podman"):
        return []
    return [f"--cpuset-cpus={environ[CORES]}", f"--cpuset-mems={environ[MEMORY]}"]


def keep_to_share() -> str:
    """Bind this process and its children to its share, if it has one. Returns what could not be done."""
    if CORES not in os.environ:
        return ""
    os.sched_setaffinity(0, numbers(os.environ[CORES]))
    nodes = numbers(os.environ[MEMORY])
    trouble = set_memory_policy(MPOL_BIND, [sum(1 << node for node in nodes)])
    return f"memory is not bound to NUMA node {os.environ[MEMORY]}: {trouble}" if trouble else ""
