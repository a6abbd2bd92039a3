"""The energy of a host's processors and memory, from RAPL's counters (Linux, Documentation/power/powercap).

Since Linux 5.10 only root may read them by default. They do not cover disks, fans, network and power supplies.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")


@dataclass
class Counter:
    """A zone's counter in microjoules, which wraps to 0 after `most`."""

    path: Path
    most: int
    last: int
    total: int = 0

    def read(self) -> int:
        """Microjoules since the first reading. Raises OSError and ValueError."""
        now = int(self.path.read_text())
        self.total += now - self.last if now >= self.last else now - self.last + self.most
        self.last = now
        return self.total


def counters(root: Path = POWERCAP) -> list[Counter]:
    """A counter for each processor, and for its memory if that has one; empty without RAPL.

    A zone within a processor counts once, with its processor. Raises OSError without permission, and ValueError for
    malformed files.
    """
    zones = [zone for zone in sorted(root.glob("intel-rapl:*")) if _is_counted(zone)]
    paths = [(zone / "energy_uj", int((zone / "max_energy_range_uj").read_text())) for zone in zones]
    return [Counter(path, most, int(path.read_text())) for path, most in paths]


def joules(zones: list[Counter]) -> dict[str, float]:
    """The joules of all zones since they were first read; empty without zones."""
    return {"host_joules": sum(zone.read() for zone in zones) / 1e6} if zones else {}


def _is_counted(zone: Path) -> bool:
    name = (zone / "name").read_text().strip()
    return name == "dram" or (name.startswith("package-") and zone.name.count(":") == 1)
