"""Sensors of system metrics, from psutil, NVML and /sys, with the keys of MLflow's collectors if it has any.

Those collectors are not imported, since MLflow's import takes 1.7 s of a core, beside a starting worker.
A sensor that fails raises the exceptions of psutil, /sys or NVML.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

INFINIBAND_WORD_BYTES = 4  # port_{rcv,xmit}_data count 32-bit words (InfiniBand specification, PortCounters)

Sensor = Callable[[], Mapping[str, float]]


class Rates:
    """Turns counters that only grow into rates a second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._before: dict[str, tuple[float, Mapping[str, float]]] = {}

    def per_sec(self, name: str, counters: Mapping[str, float]) -> dict[str, float]:
        """The rates of counters since the last call with this name.

        Empty at the first call. Counters that are new or went back (after a reset of the device) are left out.
        """
        now = self._clock()
        then, before = self._before.get(name, (now, {}))
        self._before[name] = (now, counters)
        if now <= then:
            return {}
        return {
            f"{key}_per_sec": round((value - before[key]) / (now - then), 3)
            for key, value in counters.items()
            if key in before and value >= before[key]
        }


def disk_megabytes() -> dict[str, float]:
    import psutil  # In these functions only: a worker's environment may lack it.

    counters = psutil.disk_io_counters()
    if counters is None:  # without disks, as in some containers
        return {}
    return {"disk_read_megabytes": counters.read_bytes / 1e6, "disk_write_megabytes": counters.write_bytes / 1e6}


def network_megabytes() -> dict[str, float]:
    import psutil

    counters = psutil.net_io_counters()
    return {
        "network_receive_megabytes": counters.bytes_recv / 1e6,
        "network_transmit_megabytes": counters.bytes_sent / 1e6,
    }


def disk_space(path: Path) -> dict[str, float]:
    """The metrics of MLflow's DiskMonitor, for the disk of `path` rather than the root's."""
    import psutil

    usage = psutil.disk_usage(str(path))
    return {
        "disk_usage_percentage": usage.percent,
        "disk_usage_megabytes": round(usage.used / 1e6, 1),
        "disk_available_megabytes": round(usage.free / 1e6, 1),
    }


def infiniband_megabytes(root: Path) -> dict[str, float]:
    """Payload of all ports since their counters began (Linux, Documentation/ABI/stable/sysfs-class-infiniband)."""
    counters = {}
    for direction, file in (("receive", "port_rcv_data"), ("transmit", "port_xmit_data")):
        words = [int(path.read_text()) for path in root.glob(f"*/ports/*/counters/{file}")]
        if words:
            counters[f"infiniband_{direction}_megabytes"] = sum(words) * INFINIBAND_WORD_BYTES / 1e6
    return counters


def network_files_megabytes(mountstats: Path) -> dict[str, float]:
    """Megabytes read from and written to NFS servers since the mounts were made; empty without NFS.

    Disk counters do not include them. They are the fifth and sixth number of a mount's line `bytes:` (Linux,
    fs/nfs/iostat.h). A file system mounted in several places, as in containers, counts once.
    """
    devices = mounted_devices(mountstats.with_name("mountinfo"))
    totals: dict[str, list[str]] = {}
    place = ""
    for line in mountstats.read_text().splitlines():
        words = line.split()
        if line.startswith("device "):
            place = words[4]  # device SERVER mounted on PLACE
        elif words[:1] == ["bytes:"]:
            totals[devices.get(place, place)] = words[5:7]
    if not totals:
        return {}
    read, written = (sum(int(mount[column]) for mount in totals.values()) / 1e6 for column in (0, 1))
    return {"network_files_read_megabytes": read, "network_files_write_megabytes": written}


def mounted_devices(mountinfo: Path) -> dict[str, str]:
    """The device number of each mounted file system by place (proc_pid_mountinfo(5)); empty without the file."""
    if not mountinfo.exists():
        return {}
    mounts = [line.split() for line in mountinfo.read_text().splitlines()]
    return {mount[4]: mount[2] for mount in mounts}


def processor_and_cache() -> dict[str, float]:
    """Utilisation of the busiest core since the last call (a mean over cores hides it), and the page cache."""
    import psutil

    return {
        "cpu_busiest_core_percentage": max(psutil.cpu_percent(percpu=True)),
        "page_cache_megabytes": round(getattr(psutil.virtual_memory(), "cached", 0) / 1e6, 1),
    }


def processor_and_memory() -> dict[str, float]:
    """The metrics of MLflow's CPUMonitor. CPU utilisation is that since the last call."""
    import psutil

    memory = psutil.virtual_memory()
    return {
        "cpu_utilization_percentage": psutil.cpu_percent(),
        "system_memory_usage_megabytes": round(memory.used / 1e6, 1),
        "system_memory_usage_percentage": round(100 * memory.used / memory.total, 1),
    }


def network_since_now() -> Sensor:
    """A sensor with the metrics of MLflow's NetworkMonitor: megabytes since this call."""
    before = network_megabytes()
    return lambda: {key: value - before[key] for key, value in network_megabytes().items()}
