"""The sensors of one GPU: those of MLflow's GPUMonitor, GPM if supported, buses, and causes of low clocks.

A sensor that fails raises NVMLError.
"""

from __future__ import annotations

from typing import Any

from tracking.machine.environment import gpm, nvml
from tracking.machine.usage.sensors import Rates, Sensor

ALL_LINKS = 0xFFFFFFFF  # scope for the sum over NVLinks (nvml.h, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX)
# Causes of a lowered clock, with NVML's bits (nvml.h, nvmlClocksEventReason*).
THROTTLED = {"power": 0x04 | 0x80, "thermal": 0x20 | 0x40}


def gpu_sensors(uuid: str, rates: Rates) -> dict[str, Sensor]:
    """The sensors of one GPU. Raises NVMLError for an unknown UUID, and ImportError without pynvml."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    gpu = f"gpu_{nvml.index_of(pynvml, handle)}"
    made: dict[str, Sensor] = {
        f"{gpu} memory": lambda: _memory(pynvml, handle, gpu),
        f"{gpu} utilization": lambda: _utilization(pynvml, handle, gpu),
        f"{gpu} power": lambda: _power(pynvml, handle, gpu),
        f"{gpu} power limit": lambda: _power_of_limit(pynvml, handle, gpu),
        f"{gpu} clock": lambda: _clock(pynvml, handle, gpu),
        f"{gpu} throttling": lambda: _throttled(pynvml, handle, gpu),
        f"{gpu} link": lambda: _link(pynvml, handle, gpu),
        f"{gpu} errors": _errors_since_now(pynvml, handle, gpu),
    }
    metrics = gpm.opened(pynvml, handle)
    if metrics is not None:
        # One reading has all of them. NVML's own call for PCIe would wait 20 ms.
        return made | {f"{gpu} GPM": lambda: {f"{gpu}_{name}": value for name, value in metrics.read().items()}}
    return made | {
        f"{gpu} PCIe": lambda: _pcie(pynvml, handle, gpu),
        f"{gpu} NVLink": lambda: rates.per_sec(gpu, _nvlink_megabytes(pynvml, handle, gpu)),
    }


def _memory(pynvml: Any, handle: Any, gpu: str) -> dict[str, float]:
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return {
        f"{gpu}_memory_usage_percentage": round(100 * memory.used / memory.total, 1),
        f"{gpu}_memory_usage_megabytes": round(memory.used / 1e6, 1),
    }


def _utilization(pynvml: Any, handle: Any, gpu: str) -> dict[str, float]:
    """The share of time with a running kernel."""
    return {f"{gpu}_utilization_percentage": pynvml.nvmlDeviceGetUtilizationRates(handle).gpu}


def _power(pynvml: Any, handle: Any, gpu: str) -> dict[str, float]:
    return {f"{gpu}_power_usage_watts": round(pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3, 1)}


def _power_of_limit(pynvml: Any, handle: Any, gpu: str) -> dict[str, float]:
    """The power as a share of the enforced limit, which some GPUs lack."""
    used, limit = pynvml.nvmlDeviceGetPowerUsage(handle), pynvml.nvmlDeviceGetEnforcedPowerLimit(handle)
    return {f"{gpu}_power_usage_percentage": round(100 * used / limit, 1)}


def _clock(pynvml: Any, handle: Any, gpu: str) -> dict[str, float]:
    """The current clock of the multiprocessors, as a share of the highest one."""
    now = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
    most = pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM)
    return {f"{gpu}_sm_clock_percentage": round(100.0 * now / most, 2)}


def _throttled(pynvml: Any, handle: Any, gpu: str) -> dict[str, float]:
    """100 for each cause that lowers the clock now, else 0, so that means are shares of the time."""
    try:
        reasons = int(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except pynvml.NVMLError_FunctionNotFound:  # the former name, in drivers before 535
        reasons = int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
    return {f"{gpu}_{cause}_throttled_percentage": 100.0 * bool(reasons & bits) for cause, bits in THROTTLED.items()}


def _link(pynvml: Any, handle: Any, gpu: str) -> dict[str, float]:
    """The current lanes and rate of the PCIe link, as a share of the most that GPU and slot support."""
    now, most = (
        getattr(pynvml, f"nvmlDeviceGet{kind}PcieLinkWidth")(handle)
        * 2.0 ** getattr(pynvml, f"nvmlDeviceGet{kind}PcieLinkGeneration")(handle)  # each generation doubles the rate
        for kind in ("Curr", "Max")
    )
    return {f"{gpu}_pcie_link_percentage": round(100.0 * now / most, 2)}


def _errors_since_now(pynvml: Any, handle: Any, gpu: str) -> Sensor:
    """A sensor for the GPU's memory errors since its first reading, including corrected ones."""

    def total() -> int:
        kinds = (pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
        counter = pynvml.NVML_VOLATILE_ECC
        return sum(int(pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, counter)) for kind in kinds)

    before: list[int] = []  # filled within `since`, since a GPU may not support it

    def since() -> dict[str, float]:
        errors = total()
        if not before:
            before.append(errors)
        return {f"{gpu}_ecc_errors": float(errors - before[0])}

    return since


def _pcie(pynvml: Any, handle: Any, gpu: str) -> dict[str, float]:
    """PCIe traffic in MB/s. NVML measures it for 20 ms in each call."""
    return {
        f"{gpu}_pcie_{direction}_megabytes_per_sec": pynvml.nvmlDeviceGetPcieThroughput(handle, counter) / 1e3
        for direction, counter in (
            ("receive", pynvml.NVML_PCIE_UTIL_RX_BYTES),
            ("transmit", pynvml.NVML_PCIE_UTIL_TX_BYTES),
        )
    }


def _nvlink_megabytes(pynvml: Any, handle: Any, gpu: str) -> dict[str, float]:
    """Payload over all NVLinks since the driver started, in MB; empty without NVLinks."""
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
