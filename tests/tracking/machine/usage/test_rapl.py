"""The energy of a host, from RAPL's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracking.machine.usage.system_metrics import SystemMetrics

MOST = 262_143_328_850


def zone(root: Path, place: str, name: str, microjoules: int) -> Path:
    folder = root / place
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "max_energy_range_uj").write_text(f"{MOST}\n")
    (folder / "energy_uj").write_text(f"{microjoules}\n")
    return folder / "energy_uj"


def test_processors_and_their_memory_count_once_and_a_counter_that_begins_again_goes_on(tmp_path: Path) -> None:
    package, memory = zone(tmp_path, "intel-rapl:0", "package-0", 5_000_000), MOST - 1_000_000
    dram = zone(tmp_path, "intel-rapl:0:1", "dram", memory)
    for place, name in (("intel-rapl:0:0", "core"), ("intel-rapl:1", "psys"), ("intel-rapl-mmio:0", "package-0")):
        zone(tmp_path, place, name, 0).write_text("999000000\n")
    metrics = SystemMetrics([], tmp_path, powercap=tmp_path)
    package.write_text("47000000\n")
    dram.write_text("2000000\n")  # It has begun again.
    assert metrics.sample()["system/host_joules"] == pytest.approx(42.0 + 3.0)
    assert SystemMetrics([], tmp_path, "b", powercap=tmp_path).sample()["system/b/host_joules"] == 0.0


def test_a_host_that_tells_nothing_has_no_energy_and_says_why_where_it_may_not(tmp_path: Path) -> None:
    assert "system/host_joules" not in SystemMetrics([], tmp_path, powercap=tmp_path / "none").sample()
    zone(tmp_path, "intel-rapl:0", "package-0", 0).unlink()
    metrics = SystemMetrics([], tmp_path, powercap=tmp_path)
    assert "system/host_joules" not in metrics.sample()
    assert "FileNotFoundError" in metrics.failures["energy of the host"]
