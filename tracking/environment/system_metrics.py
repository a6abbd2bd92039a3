"""System metrics of this machine, with MLflow's collectors and key names, plus the rates that those lack.

Sampled in the launcher's process, beside the worker: a thread in the worker would steal the interpreter from the
training. A sensor that fails is left out of the sample, and the next sample asks it again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tracking.environment import nvml
from tracking.environment.mlflow_import import importing_mlflow
from tracking.environment.neighbours import Neighbours
from tracking.run import Journal

INFINIBAND = Path("/sys/class/infiniband")
INFINIBAND_WORD_BYTES = 4  # port_{rcv,xmit}_data count 32-bit words (InfiniBand specification, PortCounters)
ALL_LINKS = 0xFFFFFFFF  # scope of an NVLink field that sums the links (nvml.h, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX)

Sensor = Callable[[], Mapping[str, float]]


class SystemMetrics:
    """Samples the machine and the GPUs given by UUID. `sample` raises nothing; `failures` says what is left out.

    The disk is the one that holds `disk_path`. Keys of GPUs carry NVML's index, as nvidia-smi prints it; a MIG device
    that of its GPU. With `neighbours`, their share of the CPU is sampled too. With `node`, keys begin with system/NODE/
    as MLflow writes them for multi-node runs.
    """

    def __init__(
        self, gpu_uuids: list[str], disk_path: Path, node: str = "", infiniband: Path = INFINIBAND,
        neighbours: Neighbours | None = None,
    ) -> None:  # fmt: skip
        self.failures: dict[str, str] = {}  # by sensor: what it said last
        self._prefix = f"system/{node}/" if node else "system/"
        self._rates = Rates()
        self._sensors: dict[str, Sensor] = {
            "disk traffic": lambda: self._rates.per_sec("disk", _disk_megabytes()),
            "network traffic": lambda: self._rates.per_sec("network", _network_megabytes()),
            "disk space": lambda: _disk_space(disk_path),
        }
        if neighbours is not None:
            self._sensors["neighbours"] = neighbours.sample
        if infiniband.is_dir():
            self._sensors["infiniband"] = lambda: self._rates.per_sec("infiniband", _infiniband_megabytes(infiniband))
        for name in ("cpu", "network"):
            self._add(name, partial(_mlflow_sensor, name))
        for uuid in gpu_uuids:
            self._add(uuid, partial(_gpu_sensors, uuid, self._rates))
        self.sample()  # rates and the CPU's share are of the time since the sample before

    def sample(self) -> dict[str, float]:
        """The metrics now, by MLflow key; megabytes are 1e6 bytes, rates are means since the sample before."""
        values: dict[str, float] = {}
        for name, sensor in self._sensors.items():
            try:
                values.update(sensor())
            except Exception as error:  # psutil, /sys and NVML raise what they like; the other sensors go on
                self.failures[name] = f"{type(error).__name__}: {error}"
        return {self._prefix + key: float(value) for key, value in values.items()}

    def _add(self, name: str, make: Callable[[], dict[str, Sensor]]) -> None:
        try:
            self._sensors |= make()
        except Exception as error:  # no driver, no such GPU, MLflow without this collector
            self.failures[name] = f"{type(error).__name__}: {error}"


class Rates:
    """Turns counters that only grow into rates a second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._before: dict[str, tuple[float, Mapping[str, float]]] = {}

    def per_sec(self, name: str, counters: Mapping[str, float]) -> dict[str, float]:
        """The rate of each counter since the call before under this name; none at the first call, nor for a counter
        that is new or went back (a device that was reset)."""
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


def _disk_megabytes() -> dict[str, float]:
    import psutil  # In these functions only: a worker's environment need not have it.

    counters = psutil.disk_io_counters()
    if counters is None:  # a machine without disks, as some containers see it
        return {}
    return {"disk_read_megabytes": counters.read_bytes / 1e6, "disk_write_megabytes": counters.write_bytes / 1e6}


def _network_megabytes() -> dict[str, float]:
    import psutil

    counters = psutil.net_io_counters()
    return {
        "network_receive_megabytes": counters.bytes_recv / 1e6,
        "network_transmit_megabytes": counters.bytes_sent / 1e6,
    }


def _disk_space(path: Path) -> dict[str, float]:
    """The metrics of MLflow's DiskMonitor, which knows no disk but the root's."""
    import psutil

    usage = psutil.disk_usage(str(path))
    return {
        "disk_usage_percentage": usage.percent,
        "disk_usage_megabytes": round(usage.used / 1e6, 1),
        "disk_available_megabytes": round(usage.free / 1e6, 1),
    }


def _infiniband_megabytes(root: Path) -> dict[str, float]:
    """Payload of all ports since their counters began (Linux, Documentation/ABI/stable/sysfs-class-infiniband)."""
    counters = {}
    for direction, file in (("receive", "port_rcv_data"), ("transmit", "port_xmit_data")):
        words = [int(path.read_text()) for path in root.glob(f"*/ports/*/counters/{file}")]
        if words:
            counters[f"infiniband_{direction}_megabytes"] = sum(words) * INFINIBAND_WORD_BYTES / 1e6
    return counters


def _mlflow_sensor(name: str) -> dict[str, Sensor]:
    """MLflow's monitor of the machine's CPUs and memory, or of its network."""
    if name == "cpu":
        from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor

        return {name: _sampled(CPUMonitor())}
    from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor

    return {name: _sampled(NetworkMonitor())}


def _sampled(monitor: Any) -> Sensor:
    def sample() -> Mapping[str, float]:
        monitor.clear_metrics()
        monitor.collect_metrics()
        return dict(monitor.aggregate_metrics())

    return sample


def _gpu_sensors(uuid: str, rates: Rates) -> dict[str, Sensor]:
    """MLflow's GPU monitor narrowed to one GPU, and the traffic of its buses. Raises NVMLError for an unknown UUID."""
    import logging

    import pynvml
    from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor

    # The monitor warns at every sample about a sensor that the GPU lacks.
    logging.getLogger("mlflow.system_metrics").setLevel(logging.ERROR)
    monitor = GPUMonitor()  # initialises NVML and would watch every GPU of the machine
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    monitor.gpu_handles = [handle]
    gpu = f"gpu_{nvml.index_of(pynvml, handle)}"
    sample = _sampled(monitor)
    return {
        gpu: lambda: {key.replace("gpu_0", gpu, 1): value for key, value in sample().items()},
        f"{gpu} PCIe": lambda: _pcie(pynvml, handle, gpu),
        f"{gpu} NVLink": lambda: rates.per_sec(gpu, _nvlink_megabytes(pynvml, handle, gpu)),
    }


def _pcie(pynvml: Any, handle: Any, gpu: str) -> dict[str, float]:
    """PCIe traffic in MB/s, which NVML measures over the 20 ms that each call waits."""
    return {
        f"{gpu}_pcie_{direction}_megabytes_per_sec": pynvml.nvmlDeviceGetPcieThroughput(handle, counter) / 1e3
        for direction, counter in (
            ("receive", pynvml.NVML_PCIE_UTIL_RX_BYTES),
            ("transmit", pynvml.NVML_PCIE_UTIL_TX_BYTES),
        )
    }


def _nvlink_megabytes(pynvml: Any, handle: Any, gpu: str) -> dict[str, float]:
    """Payload over all NVLinks since the driver started; nothing where the GPU has none."""
    directions = {
        "receive": pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
        "transmit": pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
    }
    fields = pynvml.nvmlDeviceGetFieldValues(handle, [(field, ALL_LINKS) for field in directions.values()])
    return {
        f"{gpu}_nvlink_{direction}_megabytes": field.value.ullVal * 1024 / 1e6  # the counters are in KiB
        for direction, field in zip(directions, fields, strict=True)
        if field.nvmlReturn == pynvml.NVML_SUCCESS
    }


class SystemMetricsThread:
    """Journals a sample every `interval_sec` until closed; the step is the sample's number, from `first_step` on."""

    def __init__(
        self,
        journal: Journal,
        gpu_uuids: list[str],
        disk_path: Path,
        interval_sec: float,
        node: str = "",
        first_step: int = 0,
        neighbours: Neighbours | None = None,
    ) -> None:
        self.failures: dict[str, str] = {}
        self._journal = journal
        self._make = lambda: SystemMetrics(gpu_uuids, disk_path, node, neighbours=neighbours)
        self._interval_sec = interval_sec
        self._first_step = first_step
        self._closed = threading.Event()
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="system-metrics", daemon=True)

    def start(self) -> SystemMetricsThread:
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop sampling. Nothing is written to the journal afterwards, even where a sensor hangs."""
        with self._writing:
            self._closed.set()
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        with importing_mlflow:
            metrics = self._make()  # here, because it imports MLflow, which takes seconds
        self.failures = metrics.failures
        index = self._first_step
        while not self._closed.wait(self._interval_sec):
            values = metrics.sample()
            with self._writing:
                if not self._closed.is_set() and self._append(values, index):
                    index += 1

    def _append(self, values: dict[str, float], index: int) -> bool:
        try:
            self._journal.metrics(values, step=index)
        except OSError as error:  # a full disk, say: it may have room again at the next sample
            self.failures["journal"] = str(error)
            return False
        return True
