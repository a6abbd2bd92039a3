"""Samples the sensors of this machine at an interval and journals the values.

It runs in the supervisor's process, since a thread in the worker would slow down the training's interpreter. A sensor
that fails is left out of the sample, and tried again in the next one.

The energy of a host's processors and memory comes from RAPL's counters (Linux, Documentation/power/powercap). Since
Linux 5.10 only root may read them by default. They do not cover disks, fans, network and power supplies.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tracking.base import quantities
from tracking.machine.usage import sensors
from tracking.machine.usage.co_tenants import CoTenants
from tracking.machine.usage.gpu_sensors import gpu_sensors
from tracking.record import Journal

INFINIBAND = Path("/sys/class/infiniband")
MOUNTSTATS = Path("/proc/self/mountstats")
POWERCAP = Path("/sys/class/powercap")


class SystemMetrics:
    """Samples the machine and the GPUs with these UUIDs. `sample` does not raise; `failures` has the failed sensors.

    The disk is that of `disk_path`. Keys of GPUs have nvidia-smi's index; a MIG device has that of its GPU. With
    `neighbours`, co-tenants' share of the CPU is sampled too. With `node`, keys begin with system/NODE/, as MLflow
    writes them for multi-node runs.
    """

    def __init__(
        self, gpu_uuids: list[str], disk_path: Path, node: str = "", infiniband: Path = INFINIBAND,
        mountstats: Path = MOUNTSTATS, neighbours: CoTenants | None = None, powercap: Path = POWERCAP,
    ) -> None:  # fmt: skip
        self.failures: dict[str, str] = {}  # last error by sensor
        self._prefix = f"{quantities.SYSTEM}{node}/" if node else quantities.SYSTEM
        self._rates = sensors.Rates()
        self._sensors: dict[str, sensors.Sensor] = {
            "disk traffic": lambda: self._rates.per_sec("disk", sensors.disk_megabytes()),
            "network traffic": lambda: self._rates.per_sec("network", sensors.network_megabytes()),
            "disk space": lambda: sensors.disk_space(disk_path),
            "processor and memory": sensors.processor_and_memory,
            "busiest core and page cache": sensors.processor_and_cache,
        }
        if neighbours is not None:
            self._sensors["neighbours"] = neighbours.sample
        if mountstats.exists():
            read = partial(sensors.network_files_megabytes, mountstats)
            self._sensors["network files"] = lambda: self._rates.per_sec("network files", read())
        if infiniband.is_dir():
            payload = partial(sensors.infiniband_megabytes, infiniband)
            self._sensors["infiniband"] = lambda: self._rates.per_sec("infiniband", payload())
        self._add("network", lambda: {"network": sensors.network_since_now()})
        self._add("energy of the host", lambda: {"energy of the host": partial(host_joules, energy_counters(powercap))})
        for uuid in gpu_uuids:
            self._add(uuid, partial(gpu_sensors, uuid, self._rates))
        self.sample()  # The first sample begins the interval of rates and CPU utilisation.

    def sample(self) -> dict[str, float]:
        """The current metrics by MLflow key. Megabytes are 1e6 bytes, rates are means since the last sample."""
        values: dict[str, float] = {}
        for name, sensor in self._sensors.items():
            try:
                values.update(sensor())
            except Exception as error:  # psutil, /sys and NVML raise various exceptions
                self.failures[name] = f"{type(error).__name__}: {error}"
        return {self._prefix + key: float(value) for key, value in values.items()}

    def _add(self, name: str, make: Callable[[], dict[str, sensors.Sensor]]) -> None:
        try:
            self._sensors |= make()
        except Exception as error:  # such as a missing driver or GPU
            self.failures[name] = f"{type(error).__name__}: {error}"


class SystemMetricsThread:
    """Journals a sample every `interval_sec` until closed. The step is the sample's number, from `first_step` on.

    A run that ends before its first sample gets one at its end, over its whole time.
    """

    def __init__(
        self,
        journal: Journal,
        gpu_uuids: list[str],
        disk_path: Path,
        interval_sec: float,
        node: str = "",
        first_step: int = 0,
        neighbours: CoTenants | None = None,
    ) -> None:
        self.failures: dict[str, str] = {}
        self._journal = journal
        self._make: Callable[[], SystemMetrics] = lambda: SystemMetrics(
            gpu_uuids, disk_path, node, neighbours=neighbours
        )
        self._interval_sec = interval_sec
        self._first_step = first_step
        self._closing = threading.Event()
        self._closed = False
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="system-metrics", daemon=True)

    def start(self) -> SystemMetricsThread:
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop sampling. The journal gets no sample afterwards, even if a sensor hangs."""
        self._closing.set()
        self._thread.join(timeout=1.0)
        with self._writing:
            self._closed = True

    def _run(self) -> None:
        metrics = self._make()
        self.failures = metrics.failures
        index = self._first_step
        closing = False
        while not closing:
            closing = self._closing.wait(self._interval_sec)
            if closing and index > self._first_step:
                break
            values = metrics.sample()
            with self._writing:
                if not self._closed and self._append(values, index):
                    index += 1

    def _append(self, values: dict[str, float], index: int) -> bool:
        try:
            self._journal.metrics(values, step=index)
        except OSError as error:  # a full disk, say: it may have room again at the next sample
            self.failures["journal"] = str(error)
            return False
        return True


@dataclass
class EnergyCounter:
    """A zone's counter in microjoules, which wraps to 0 after `most`."""

    path: Path
    most: int
    last: int
    total: int = 0

    def read(self) -> int:
        """Microjoules since the first reading. Raises OSError and ValueError."""
        now = int(self.path.read_text())
        self.total += now - self.last if now >= self.last else now - self.last + self.most
        self.last = now
        return self.total


def energy_counters(root: Path = POWERCAP) -> list[EnergyCounter]:
    """A counter for each processor, and for its memory if that has one; empty without RAPL.

    A zone within a processor counts once, with its processor. Raises OSError without permission, and ValueError for
    malformed files.
    """
    zones = [zone for zone in sorted(root.glob("intel-rapl:*")) if _is_counted(zone)]
    paths = [(zone / "energy_uj", int((zone / "max_energy_range_uj").read_text())) for zone in zones]
    return [EnergyCounter(path, most, int(path.read_text())) for path, most in paths]


def host_joules(zones: list[EnergyCounter]) -> dict[str, float]:
    """The joules of all zones since they were first read; empty without zones."""
    return {"host_joules": sum(zone.read() for zone in zones) / 1e6} if zones else {}


def _is_counted(zone: Path) -> bool:
    name = (zone / "name").read_text().strip()
    return name == "dram" or (name.startswith("package-") and zone.name.count(":") == 1)
