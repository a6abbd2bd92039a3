from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support.commands import environment
from tests.support.folders import wait_for
from tests.tracking.machine.environment.fake_nvml import FakeNvml
from tracking.machine.usage.sensors import Rates, network_files_megabytes
from tracking.machine.usage.system_metrics import SystemMetrics, SystemMetricsThread
from tracking.record.journal import Journal, read

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

MACHINE_KEYS = {
    "system/cpu_busiest_core_percentage",
    "system/page_cache_megabytes",
    "system/cpu_utilization_percentage",
    "system/system_memory_usage_megabytes",
    "system/system_memory_usage_percentage",
    "system/disk_usage_percentage",
    "system/disk_usage_megabytes",
    "system/disk_available_megabytes",
    "system/network_receive_megabytes",
    "system/network_transmit_megabytes",
    "system/network_receive_megabytes_per_sec",
    "system/network_transmit_megabytes_per_sec",
}
DISK_RATES = {"system/disk_read_megabytes_per_sec", "system/disk_write_megabytes_per_sec"}


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    import mlflow.system_metrics.metrics.gpu_monitor as gpu_monitor

    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(gpu_monitor, "pynvml", fake, raising=False)
    return fake


def test_the_machine_is_sampled_under_mlflows_names(tmp_path: Path) -> None:
    values = SystemMetrics([], tmp_path, infiniband=tmp_path / "none", powercap=tmp_path / "none").sample()
    assert set(values) - DISK_RATES == MACHINE_KEYS
    assert values["system/disk_available_megabytes"] == pytest.approx(psutil.disk_usage(str(tmp_path)).free / 1e6, 0.05)


def test_keys_and_values_are_those_of_mlflows_own_collectors(nvml: FakeNvml, tmp_path: Path) -> None:
    from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
    from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor
    from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor

    theirs: dict[str, float] = {}
    for monitor in (CPUMonitor(), NetworkMonitor(), GPUMonitor()):
        monitor.collect_metrics()
        theirs |= monitor.aggregate_metrics()
    ours = SystemMetrics(["GPU-0"], tmp_path).sample()
    gpu = {key: value for key, value in theirs.items() if key.startswith("gpu_0")}
    assert gpu
    assert {key: ours[f"system/{key}"] for key in gpu} == pytest.approx(gpu)
    assert {f"system/{key}" for key in theirs if not key.startswith("gpu_")} <= set(ours)


@pytest.mark.parametrize(
    ("query", "missing"),
    [
        ("nvmlDeviceGetMemoryInfo", {"memory_usage_percentage", "memory_usage_megabytes"}),
        ("nvmlDeviceGetUtilizationRates", {"utilization_percentage"}),
        ("nvmlDeviceGetEnforcedPowerLimit", {"power_usage_percentage"}),
    ],
)
def test_what_a_gpu_lacks_is_absent_by_itself(nvml: FakeNvml, query: str, missing: set[str], tmp_path: Path) -> None:
    whole = set(SystemMetrics(["GPU-0"], tmp_path).sample())
    nvml.broken.add(query)
    assert whole - set(SystemMetrics(["GPU-0"], tmp_path).sample()) == {f"system/gpu_0_{key}" for key in missing}


@pytest.mark.slow
def test_mlflow_is_not_imported_for_it(tmp_path: Path) -> None:
    code = "import sys; from tracking.machine.usage.system_metrics import SystemMetrics as S; from pathlib import Path;"
    code += "S(['GPU-0'], Path('.')).sample(); sys.exit('mlflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment()).returncode == 0


def test_only_the_gpus_in_use_are_sampled_under_their_own_index(nvml: FakeNvml, tmp_path: Path) -> None:
    values = SystemMetrics(["GPU-2"], tmp_path).sample()
    gpu = {key: value for key, value in values.items() if "gpu" in key}
    assert gpu.pop("system/gpu_2_nvlink_receive_megabytes_per_sec") > 0  # transmit is not supported here, and absent
    assert gpu == {
        "system/gpu_2_memory_usage_percentage": 2.0,
        "system/gpu_2_memory_usage_megabytes": 2000.0,
        "system/gpu_2_utilization_percentage": 92.0,
        "system/gpu_2_power_usage_watts": 350.0,
        "system/gpu_2_power_usage_percentage": 50.0,
        "system/gpu_2_pcie_receive_megabytes_per_sec": 12.0,
        "system/gpu_2_pcie_transmit_megabytes_per_sec": 7.0,
        "system/gpu_2_power_throttled_percentage": 100.0,
        "system/gpu_2_thermal_throttled_percentage": 0.0,
        "system/gpu_2_sm_clock_percentage": 75.0,
        "system/gpu_2_pcie_link_percentage": 25.0,
        "system/gpu_2_ecc_errors": 2.0,  # since the first sample
    }
    nvml.broken.clear()  # now GPU-1 is a MIG device of the GPU with the index 3
    assert "system/node_1/gpu_3_memory_usage_megabytes" in SystemMetrics(["GPU-1"], tmp_path, node="node_1").sample()


def test_a_failing_sensor_is_left_out_and_comes_back(
    nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = SystemMetrics(["GPU-0", "GPU-9"], tmp_path)
    assert metrics.failures == {"GPU-9": "NVMLError: Not Found"}
    nvml.broken |= {"nvmlDeviceGetPcieThroughput", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetFieldValues"}

    def unreadable(path: str) -> None:
        raise OSError("stale file handle")

    with monkeypatch.context() as patch:
        patch.setattr(psutil, "disk_usage", unreadable)
        patch.setattr(psutil, "disk_io_counters", lambda: None)
        values = metrics.sample()
    assert {"system/gpu_0_power_usage_watts", "system/cpu_utilization_percentage"} < set(values)
    assert not any("_pcie_receive" in key or "nvlink" in key or "gpu_0_util" in key or "disk" in key for key in values)
    assert metrics.failures["disk space"] == "OSError: stale file handle"
    assert metrics.failures["gpu_0 PCIe"] == "NVMLError: Not Supported"
    nvml.broken.clear()
    assert {"system/gpu_0_utilization_percentage", "system/disk_usage_percentage"} < set(metrics.sample())


def test_rates_are_differences_over_time() -> None:
    now = iter([10.0, 12.0, 12.0, 14.0])
    rates = Rates(lambda: next(now))
    assert rates.per_sec("disk", {"read_megabytes": 100.0}) == {}
    assert rates.per_sec("disk", {"read_megabytes": 103.0, "new": 1.0}) == {"read_megabytes_per_sec": 1.5}
    assert rates.per_sec("disk", {"read_megabytes": 103.0}) == {}
    assert rates.per_sec("disk", {"read_megabytes": 2.0}) == {}  # a device that was reset


def test_infiniband_is_read_in_four_byte_words(tmp_path: Path) -> None:
    counters = [tmp_path / f"mlx5_{i}" / "ports" / "1" / "counters" for i in range(2)]
    for folder in counters:
        folder.mkdir(parents=True)
        (folder / "port_rcv_data").write_text("0\n")
        (folder / "port_xmit_data").write_text("5\n")
    start = time.monotonic()
    metrics = SystemMetrics([], tmp_path, infiniband=tmp_path)
    for folder in counters:
        (folder / "port_rcv_data").write_text("1000000000\n")
    values = metrics.sample()
    assert values["system/infiniband_transmit_megabytes_per_sec"] == 0
    assert values["system/infiniband_receive_megabytes_per_sec"] <= 8000 / 1e-6
    assert values["system/infiniband_receive_megabytes_per_sec"] > 8000 / (time.monotonic() - start)


def test_what_network_file_systems_move_is_counted_over_all_mounts(tmp_path: Path) -> None:
    """Disks' counters do not see it. A machine without such mounts has no such metric, as MACHINE_KEYS says above."""
    mountstats = tmp_path / "mountstats"

    def moved(*of_mounts: tuple[int, int]) -> None:
        mounts = "".join(
            f"device server:/{place} mounted on /mnt/{place} with fstype nfs4 statvers=1.1\n"
            f"\topts:\trw,vers=4.2\n\tbytes:\t9 9 9 9 {read} {written} 9 9\n"
            for place, (read, written) in enumerate(of_mounts)
        )
        mountstats.write_text(f"device proc mounted on /proc with fstype proc\n{mounts}")

    moved((10**9, 0), (0, 5))
    start = time.monotonic()
    metrics = SystemMetrics([], tmp_path, mountstats=mountstats)
    moved((3 * 10**9, 0), (10**9, 5))
    values = metrics.sample()
    assert values["system/network_files_read_megabytes_per_sec"] > 3000 / (time.monotonic() - start)
    assert values["system/network_files_write_megabytes_per_sec"] == 0
    mountstats.unlink()
    assert not any("network_files" in key for key in metrics.sample())
    assert "FileNotFoundError" in metrics.failures["network files"]


def test_a_network_file_system_that_is_mounted_twice_counts_once(tmp_path: Path) -> None:
    """As a container's folders are: each place shows the counters of the whole file system."""
    places = {"/mnt/data": "0:51", "/data": "0:51", "/home": "0:52"}
    (tmp_path / "mountstats").write_text(
        "".join(
            f"device server:/export mounted on {place} with fstype nfs4 statvers=1.1\n\tbytes:\t9 9 9 9 2000000 5 9 9\n"
            for place in places
        )
    )
    (tmp_path / "mountinfo").write_text(
        "".join(f"36 25 {device} / {place} rw - nfs4 server:/export rw\n" for place, device in places.items())
    )
    assert network_files_megabytes(tmp_path / "mountstats")["network_files_read_megabytes"] == 4.0


def test_the_thread_journals_samples_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    thread = SystemMetricsThread(journal, [], tmp_path, interval_sec=0.02).start()
    wait_for(lambda: len(list(read(path))) >= 3)
    thread.close()
    journal.close()
    records = [record for record, _ in read(path)]
    assert [record.step for record in records] == list(range(len(records)))
    assert len(records) >= 3
    assert set(records[-1].values) >= MACHINE_KEYS
    size = path.stat().st_size
    time.sleep(0.1)
    assert path.stat().st_size == size
    assert all(json.loads(line)["kind"] == "metrics" for line in path.read_text().splitlines())


def test_what_ends_before_its_first_sample_has_one(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    thread = SystemMetricsThread(journal, [], tmp_path, interval_sec=60)
    before = thread.failures
    thread.start()
    wait_for(lambda: thread.failures is not before)  # it has its sensors
    thread.close()
    journal.close()
    ((record, _),) = read(path)
    assert set(record.values) >= MACHINE_KEYS
    assert record.step == 0
