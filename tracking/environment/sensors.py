"""What system metrics are read from: MLflow's collectors under its key names, and the rates that those lack.

A sensor raises what psutil, /sys or NVML raise where it fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tracking.environment import nvml

INFINIBAND_WORD_BYTES = 4  # port_{rcv,xmit}_data count 32-bit words (InfiniBand specification, PortCounters)
ALL_LINKS = 0xFFFFFFFF  # scope of an NVLink field that sums the links (nvml.h, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX)

Sensor = Callable[[], Mapping[str, float]]


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


def disk_megabytes() -> dict[str, float]:
    import psutil  # In these functions only: a worker's environment need not have it.

    counters = psutil.disk_io_counters()
    if counters is None:  # a machine without disks, as some containers see it
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
    """The metrics of MLflow's DiskMonitor, which knows no disk but the root's."""
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


def mlflow_sensor(name: str) -> dict[str, Sensor]:
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


def gpu_sensors(uuid: str, rates: Rates) -> dict[str, Sensor]:
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
