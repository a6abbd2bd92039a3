"""NVML's GPU performance metrics (GPM) of Hopper and later: activity of a GPU's units between two readings.

Any user may read them, also beside a profiler. Reading all of them takes some hundredths of a millisecond
(NVML API reference, "GPM Functions").
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

MEBIBYTE = 2**20 / 1e6  # NVML counts mebibytes, we report megabytes
SHORTEST_SEC = 0.1  # shortest window that NVML allows
# Names of the metrics and factors of their values, by NVML's number (nvml.h, nvmlGpmMetricId_t).
METRICS = {
    1: ("engine_activity_percentage", 1.0),
    2: ("sm_activity_percentage", 1.0),
    3: ("sm_occupancy_percentage", 1.0),
    5: ("tensor_activity_percentage", 1.0),
    10: ("dram_bandwidth_percentage", 1.0),
    11: ("fp64_activity_percentage", 1.0),
    12: ("fp32_activity_percentage", 1.0),
    13: ("fp16_activity_percentage", 1.0),
    20: ("pcie_transmit_megabytes_per_sec", MEBIBYTE),
    21: ("pcie_receive_megabytes_per_sec", MEBIBYTE),
    60: ("nvlink_receive_megabytes_per_sec", MEBIBYTE),
    61: ("nvlink_transmit_megabytes_per_sec", MEBIBYTE),
}


class Gpm:
    """The metrics of the GPU or MIG device with this `handle`. `read` raises NVMLError."""

    def __init__(self, pynvml: Any, handle: Any, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the first reading. Raises NVMLError if GPM is not permitted."""
        self._nvml, self._clock = pynvml, clock
        self._take = _sampler(pynvml, handle)
        self._before, self._now = (_sample(self, pynvml) for _ in range(2))
        self._taken: float | None = None
        self.read()

    def read(self) -> dict[str, float]:
        """The metrics as means since the last reading; empty at the first one, after a failure, or too soon."""
        now = self._clock()
        if self._taken is not None and now - self._taken < SHORTEST_SEC:
            return {}
        began, self._taken = self._taken is not None, None  # A failed reading does not begin a window.
        self._take(self._now)
        self._taken = now
        try:
            return self._between() if began else {}
        finally:
            self._before, self._now = self._now, self._before

    def _between(self) -> dict[str, float]:
        request = self._nvml.c_nvmlGpmMetricsGet_t()
        request.version, request.numMetrics = self._nvml.NVML_GPM_METRICS_GET_VERSION, len(METRICS)
        request.sample1, request.sample2 = self._before, self._now
        for place, number in enumerate(METRICS):
            request.metrics[place].metricId = number
        self._nvml.nvmlGpmMetricsGet(request)
        return {
            name: round(metric.value * factor, 3)
            for (name, factor), metric in zip(METRICS.values(), request.metrics, strict=False)
            if metric.nvmlReturn == self._nvml.NVML_SUCCESS and metric.value >= 0  # NaN if the GPU lacks the unit
        }


def opened(pynvml: Any, handle: Any) -> Gpm | None:
    """The metrics of a GPU; None before Hopper, with an older driver, or without permission."""
    try:
        if not _supported(pynvml, handle):
            return None
        return Gpm(pynvml, handle)
    except (AttributeError, pynvml.NVMLError):  # an older nvidia-ml-py, or no permission, as for MIG in containers
        return None


def gpu_counters(uuid: str) -> Gpm | None:
    """The metrics of a GPU by its UUID; None without metrics or without a driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # the module or the driver is missing; various exceptions
        return None
    try:
        return opened(pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"))
    except pynvml.NVMLError:
        return None


def _supported(pynvml: Any, handle: Any) -> bool:
    return bool(pynvml.nvmlGpmQueryDeviceSupport(_whole(pynvml, handle) or handle).isSupportedDevice)


def _whole(pynvml: Any, handle: Any) -> Any | None:
    """The GPU of a MIG device; None for a whole GPU."""
    try:
        return pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
    except pynvml.NVMLError:
        return None


def _sampler(pynvml: Any, handle: Any) -> Callable[[Any], None]:
    whole = _whole(pynvml, handle)
    if whole is None:
        return lambda sample: pynvml.nvmlGpmSampleGet(handle, sample)
    instance = pynvml.nvmlDeviceGetGpuInstanceId(handle)
    return lambda sample: pynvml.nvmlGpmMigSampleGet(whole, instance, sample)


def _sample(owner: Gpm, pynvml: Any) -> Any:
    """A buffer for a reading, which is freed with its owner."""
    sample = pynvml.nvmlGpmSampleAlloc()
    weakref.finalize(owner, _free, pynvml, sample)
    return sample


def _free(pynvml: Any, sample: Any) -> None:
    try:
        pynvml.nvmlGpmSampleFree(sample)
    except pynvml.NVMLError:
        return  # The driver is gone, and its memory with it.
