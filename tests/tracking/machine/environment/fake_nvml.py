"""NVML as tests have it: a machine of four GPUs, before Hopper and since."""

from __future__ import annotations

import types


class FakeNvml(types.ModuleType):
    """A machine of four GPUs named GPU-0 to GPU-3, as much of nvidia-ml-py as is asked for."""

    NVML_SUCCESS = 0
    NVML_CLOCK_SM = 1
    NVML_VOLATILE_ECC = 0
    NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 0, 1
    NVML_DEVICE_MIG_ENABLE = 1
    NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 138, 139

    class NVMLError(Exception):
        pass

    class NVMLError_FunctionNotFound(NVMLError):
        pass

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.broken: set[str] = {"nvmlDeviceGetDeviceHandleFromMigDeviceHandle"}  # A whole GPU has none.
        self.nvlink_kib = self.ecc_errors = 0
        self.clock_reasons = 0x1 | 0x4  # idle, and a cap on its power

    def __getattribute__(self, name: str) -> object:
        if name.startswith("nvml") and name in self.broken:
            return self.fail
        return super().__getattribute__(name)

    def fail(self, *_: object) -> None:
        raise self.NVMLError("Not Supported")

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "NVIDIA GB10"

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        return 12, 1

    def nvmlDeviceGetMigMode(self, handle: int) -> tuple[int, int]:
        return 0, 0

    def nvmlDeviceGetCount(self) -> int:
        return 4

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        if uuid not in ("GPU-0", "GPU-1", "GPU-2", "GPU-3"):
            raise self.NVMLError("Not Found")
        return int(uuid[-1])

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: int) -> int:
        return 3

    def nvmlDeviceGetIndex(self, handle: int) -> int:
        return handle

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> types.SimpleNamespace:
        return types.SimpleNamespace(used=handle * 1e9, total=100e9)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        return 5_000

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> types.SimpleNamespace:
        return types.SimpleNamespace(gpu=90 + handle)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        return 350_000

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: int) -> int:
        return 700_000

    def nvmlDeviceGetClockInfo(self, handle: int, clock: int) -> int:
        return 1485

    def nvmlDeviceGetMaxClockInfo(self, handle: int, clock: int) -> int:
        return 1980

    def nvmlDeviceGetPcieThroughput(self, handle: int, counter: int) -> int:
        return [7000, 12000][counter]

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: int) -> int:
        return 8

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: int) -> int:
        return 16

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: int) -> int:
        return 4

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: int) -> int:
        return 5

    def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, counter: int) -> int:
        self.ecc_errors += kind == self.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
        return self.ecc_errors

    def nvmlDeviceGetFieldValues(self, handle: int, fields: list[tuple[int, int]]) -> list[types.SimpleNamespace]:
        self.nvlink_kib += 1_000_000
        value = types.SimpleNamespace(ullVal=self.nvlink_kib)
        return [types.SimpleNamespace(nvmlReturn=0 if field == 139 else 3, value=value) for field, _ in fields]

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: int) -> int:
        return self.clock_reasons


class HopperNvml(FakeNvml):
    """The same with GPM: readings count up from 0, and a metric is its number times the readings in between."""

    NVML_GPM_METRICS_GET_VERSION = 1
    ABSENT = 12  # a metric that this GPU lacks

    def __init__(self) -> None:
        super().__init__()
        self.supported, self.readings, self.allocated = 1, 0, 0
        self.sampled: list[tuple[int, ...]] = []

    def nvmlGpmQueryDeviceSupport(self, handle: int) -> types.SimpleNamespace:
        return types.SimpleNamespace(isSupportedDevice=self.supported)

    def nvmlGpmSampleAlloc(self) -> types.SimpleNamespace:
        self.allocated += 1
        return types.SimpleNamespace(at=None)

    def nvmlGpmSampleFree(self, sample: types.SimpleNamespace) -> None:
        self.allocated -= 1

    def nvmlGpmSampleGet(self, handle: int, sample: types.SimpleNamespace) -> None:
        self.sampled.append((handle,))
        self.readings += 1
        sample.at = self.readings

    def nvmlDeviceGetGpuInstanceId(self, handle: int) -> int:
        return 7

    def nvmlGpmMigSampleGet(self, handle: int, instance: int, sample: types.SimpleNamespace) -> None:
        self.nvmlGpmSampleGet(handle, sample)
        self.sampled[-1] = (handle, instance)

    def c_nvmlGpmMetricsGet_t(self) -> types.SimpleNamespace:
        places = [types.SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(98)]
        return types.SimpleNamespace(version=0, numMetrics=0, sample1=None, sample2=None, metrics=places)

    def nvmlGpmMetricsGet(self, asked: types.SimpleNamespace) -> None:
        assert (asked.version, asked.numMetrics) == (1, 12)
        for metric in asked.metrics[: asked.numMetrics]:
            metric.value = float(metric.metricId * (asked.sample2.at - asked.sample1.at))
            metric.nvmlReturn = 3 if metric.metricId == self.ABSENT else 0
        asked.metrics[1].value = float("nan")
