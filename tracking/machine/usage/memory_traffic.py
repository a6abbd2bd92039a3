"""Traffic of the CPU's memory, by the counters of its memory controllers, where the kernel lets this user read them.

Servers of Intel's have a device `uncore_imc_N` a channel, with its events in words (Linux,
Documentation/ABI/testing/sysfs-bus-event_source-devices-events). Reading them takes the right to watch the whole
machine (perf_event_open(2): CAP_PERFMON, or kernel.perf_event_paranoid below 1), and virtual machines have none.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

DEVICES = Path("/sys/bus/event_source/devices")
EVENTS = ("cas_count_read", "cas_count_write")
UNITS = {"MiB": 2**20 / 1e6, "Bytes": 1e-6}
PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}  # numbers of the system call
ATTR_BYTES = 64  # PERF_ATTR_SIZE_VER0
CLOSE_ON_EXEC = 8  # PERF_FLAG_FD_CLOEXEC
Opener = Callable[[int, int, int], int]  # a counter's descriptor, of a device's type, an event and a CPU


class MemoryTraffic:
    """All memory controllers' counters. Raises OSError where they may not be read, ValueError where there are none."""

    def __init__(self, devices: Path = DEVICES, opener: Opener | None = None) -> None:
        self._counters: list[tuple[int, float]] = []
        self._closing = weakref.finalize(self, close, self._counters)
        for kind, config, cpu, megabytes in events_of(devices):
            self._counters.append(((opener or perf_event_open)(kind, config, cpu), megabytes))
        if not self._counters:
            raise ValueError("no memory controller's counters")

    def megabytes(self) -> dict[str, float]:
        """What was read and written since the counters were opened. Raises OSError."""
        total = sum(int.from_bytes(os.read(file, 8), "little") * each for file, each in self._counters)
        return {"cpu_memory_megabytes": total}


def opened(devices: Path = DEVICES) -> MemoryTraffic | None:
    """None where there are no such counters, or this user may not read them."""
    try:
        return MemoryTraffic(devices)
    except (OSError, ValueError, KeyError):
        return None


def events_of(devices: Path) -> Iterator[tuple[int, int, int, float]]:
    """Type, event, CPU and megabytes a count of every counter. Raises OSError, and ValueError for other words."""
    for device in sorted(devices.glob("uncore_imc*")):
        kind = int((device / "type").read_text())
        cpus = [int(cpu) for cpu in re.findall(r"\d+", (device / "cpumask").read_text())]
        for name in EVENTS:
            event = device / "events" / name
            if not event.exists():  # A free-running counter has other names.
                continue
            scale = float(event.with_name(f"{name}.scale").read_text())
            unit = UNITS[event.with_name(f"{name}.unit").read_text().strip()]
            config = config_of(event.read_text(), device / "format")
            yield from ((kind, config, cpu, scale * unit) for cpu in cpus)


def config_of(words: str, format_folder: Path) -> int:
    """The event of `event=0x04,umask=0x03`, where `format` says which bits each of these has. Raises ValueError."""
    config = 0
    for word in words.strip().split(","):
        key, _, value = word.partition("=")
        place = re.fullmatch(r"config:(\d+)(?:-\d+)?", (format_folder / key).read_text().strip())
        if not place:
            raise ValueError(f"{key}: bits of another word")
        config |= int(value, 0) << int(place[1])
    return config


def perf_event_open(kind: int, config: int, cpu: int) -> int:
    """A counter of a whole CPU's device. Raises OSError."""
    attributes = struct.pack("=IIQQQQQIIQ", kind, ATTR_BYTES, config, 0, 0, 0, 0, 0, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    number = PERF_EVENT_OPEN[os.uname().machine]
    file = int(libc.syscall(number, attributes, -1, cpu, -1, CLOSE_ON_EXEC))
    if file < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return file


def close(counters: list[tuple[int, float]]) -> None:
    for file, _ in counters:
        os.close(file)
