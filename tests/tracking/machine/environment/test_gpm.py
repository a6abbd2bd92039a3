"""GPM's metrics among the system metrics: on Hopper, on what came before, and where they may not be read."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tracking.machine.environment.fake_nvml import FakeNvml, HopperNvml
from tracking.machine.environment import gpm
from tracking.machine.usage.system_metrics import SystemMetrics

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
ACTIVITY = {
    "engine_activity_percentage": 1.0,
    "sm_occupancy_percentage": 3.0, "tensor_activity_percentage": 5.0, "dram_bandwidth_percentage": 10.0,
    "fp64_activity_percentage": 11.0, "fp16_activity_percentage": 13.0,
}  # fmt: skip
TRAFFIC = {  # from MiB to MB
    "pcie_transmit_megabytes_per_sec": 20.972, "pcie_receive_megabytes_per_sec": 22.02,
    "nvlink_receive_megabytes_per_sec": 62.915, "nvlink_transmit_megabytes_per_sec": 63.963,
}  # fmt: skip


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> HopperNvml:
    return installed(monkeypatch, HopperNvml())


def installed(monkeypatch: pytest.MonkeyPatch, fake: HopperNvml) -> HopperNvml:
    import mlflow.system_metrics.metrics.gpu_monitor as gpu_monitor

    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(gpu_monitor, "pynvml", fake, raising=False)
    monkeypatch.setattr(gpm, "SHORTEST_SEC", 0.0)
    return fake


def of_gpu(values: dict[str, float], index: int = 2) -> dict[str, float]:
    """A GPU's metrics by their names alone, but for MLflow's own, its errors and the width of its link."""
    prefix = f"system/gpu_{index}_"
    known = ("memory", "utilization", "power", "thermal", "sm_clock", "ecc_errors", "pcie_link")
    return {
        key.removeprefix(prefix): value
        for key, value in values.items()
        if key.startswith(prefix) and not key.removeprefix(prefix).startswith(known)
    }


def test_what_a_gpu_did_since_the_sample_before_is_in_every_sample(hopper: HopperNvml, tmp_path: Path) -> None:
    """Metrics that this GPU lacks, and NaN, are absent. NVML's slow PCIe counters are not read."""
    hopper.broken |= {"nvmlDeviceGetPcieThroughput", "nvmlDeviceGetFieldValues"}
    metrics = SystemMetrics(["GPU-2"], tmp_path)
    for _ in range(2):
        assert of_gpu(metrics.sample()) == ACTIVITY | TRAFFIC
    assert metrics.failures == {}
    assert hopper.sampled == [(2,)] * 4  # when it was opened, with the first sample, and then once a sample


@pytest.mark.parametrize("lacking", ["support", "the driver's function", "permission", "a library that knows it"])
def test_without_it_there_is_what_nvml_has(hopper: HopperNvml, tmp_path: Path, lacking: str) -> None:
    if lacking == "support":
        hopper.supported = 0
    elif lacking == "the driver's function":
        hopper.broken.add("nvmlGpmQueryDeviceSupport")
    elif lacking == "permission":
        hopper.broken.add("nvmlGpmSampleGet")
    else:
        assert not hasattr(FakeNvml, "nvmlGpmQueryDeviceSupport")
        hopper = FakeNvml()  # type: ignore[assignment]
        sys.modules["pynvml"] = hopper
    metrics = SystemMetrics(["GPU-2"], tmp_path)
    kept = of_gpu(metrics.sample())
    assert kept.pop("nvlink_receive_megabytes_per_sec") > 0
    assert kept == {"pcie_receive_megabytes_per_sec": 12.0, "pcie_transmit_megabytes_per_sec": 7.0}
    assert metrics.failures == {}


def test_a_gpu_that_is_gone_costs_its_own_samples_alone(hopper: HopperNvml, tmp_path: Path) -> None:
    """The first reading of a GPU that is back starts a new interval. The time of its absence gets no sample."""
    metrics = SystemMetrics(["GPU-1", "GPU-2"], tmp_path)
    hopper.broken.add("nvmlGpmSampleGet")
    assert of_gpu(metrics.sample()) == {}
    assert metrics.failures == {f"gpu_{index} GPM": "NVMLError: Not Supported" for index in (1, 2)}
    hopper.broken.remove("nvmlGpmSampleGet")
    assert of_gpu(metrics.sample()) == {}
    assert of_gpu(metrics.sample(), 1)["dram_bandwidth_percentage"] == 20.0  # the other GPU was read in between


class LosingNvml(HopperNvml):
    """The same with a GPU that may be lost: every call about it fails."""

    lost: int | None = None

    def __getattribute__(self, name: str) -> Any:
        answer = super().__getattribute__(name)
        if not name.startswith(("nvmlDevice", "nvmlGpmSampleGet")) or name == "nvmlDeviceGetCount":
            return answer

        def asked(handle: Any, *others: Any) -> Any:
            return self.fail() if handle == self.lost else answer(handle, *others)

        return asked


def test_a_gpu_that_falls_off_the_bus_is_absent_from_then_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = installed(monkeypatch, LosingNvml())
    metrics = SystemMetrics(["GPU-1", "GPU-2"], tmp_path)
    before = {key for key in metrics.sample() if key.startswith("system/gpu_")}
    fake.lost = 1
    for _ in range(2):
        after = {key for key in metrics.sample() if key.startswith("system/gpu_")}
        assert after == {key for key in before if key.startswith("system/gpu_2_")}
        assert len(after) == len(before) / 2
    assert {name for name in metrics.failures if name.startswith("gpu_")} >= {"gpu_1 GPM", "gpu_1 clock"}


def test_a_mig_device_is_read_as_a_part_of_its_gpu(hopper: HopperNvml, tmp_path: Path) -> None:
    hopper.broken.clear()
    metrics = SystemMetrics(["GPU-1"], tmp_path)
    assert of_gpu(metrics.sample(), 3) == ACTIVITY | TRAFFIC
    assert set(hopper.sampled) == {(3, 7)}


def test_a_window_is_not_shorter_than_nvml_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = HopperNvml()
    now: Iterator[float] = iter([10.0, 10.05, 10.11, 10.3])
    metrics = gpm.Gpm(fake, 2, clock=lambda: next(now))
    assert metrics.read() == {}
    assert metrics.read()["tensor_activity_percentage"] == 5.0
    assert fake.readings == 2
    assert metrics.read()["tensor_activity_percentage"] == 5.0


def test_what_was_allocated_is_freed(hopper: HopperNvml, tmp_path: Path) -> None:
    metrics = SystemMetrics(["GPU-1", "GPU-2"], tmp_path)
    assert hopper.allocated == 4
    del metrics
    gc.collect()
    assert hopper.allocated == 0
