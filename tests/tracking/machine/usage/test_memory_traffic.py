"""The counters of the CPU's memory controllers: what the kernel says of them, and where they may not be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tracking.machine.usage import memory_traffic
from tracking.machine.usage.memory_traffic import MemoryTraffic, events_of, opened


def controller(root: Path, number: int, bits: str = "config:8-15") -> None:
    """As Linux shows a channel of an Intel server with two sockets."""
    device = root / f"uncore_imc_{number}"
    for folder in ("events", "format"):
        (device / folder).mkdir(parents=True)
    (device / "type").write_text(f"{20 + number}\n")
    (device / "cpumask").write_text("0,48\n")
    (device / "format/event").write_text("config:0-7\n")
    (device / "format/umask").write_text(f"{bits}\n")
    for name, umask in (("cas_count_read", 3), ("cas_count_write", 0xC)):
        (device / f"events/{name}").write_text(f"event=0x04,umask={umask:#x}\n")
        (device / f"events/{name}.scale").write_text("6.103515625e-5\n")
        (device / f"events/{name}.unit").write_text("MiB\n")


def test_all_channels_of_all_sockets_are_added_up(tmp_path: Path) -> None:
    controller(tmp_path, 0)
    controller(tmp_path, 1)
    asked: list[tuple[int, int, int]] = []

    def counter(kind: int, config: int, cpu: int) -> int:
        """A counter that stands at 16,384 cache lines of 64 bytes, one mebibyte."""
        asked.append((kind, config, cpu))
        reading, writing = os.pipe()
        os.write(writing, (16_384).to_bytes(8, "little"))
        os.close(writing)
        return reading

    traffic = MemoryTraffic(tmp_path, counter)
    assert asked == [(20 + n, umask << 8 | 4, cpu) for n in (0, 1) for umask in (3, 12) for cpu in (0, 48)]
    assert traffic.megabytes() == {"cpu_memory_megabytes": pytest.approx(8 * 2**20 / 1e6)}


def test_counters_that_are_not_there_or_not_ours_are_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert opened(tmp_path) is None, "as in a virtual machine"
    controller(tmp_path, 0)

    def refuse(kind: int, config: int, cpu: int) -> int:
        raise PermissionError(13, "kernel.perf_event_paranoid is 2")

    monkeypatch.setattr(memory_traffic, "perf_event_open", refuse)
    assert opened(tmp_path) is None
    controller(tmp_path, 1, bits="config1:0-7")
    with pytest.raises(ValueError, match="umask"):
        list(events_of(tmp_path))
    assert opened(tmp_path) is None


def test_this_machines_own_raise_nothing() -> None:
    traffic = opened()
    assert traffic is None or traffic.megabytes()["cpu_memory_megabytes"] >= 0
