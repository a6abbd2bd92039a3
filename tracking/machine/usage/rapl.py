"""The energy of a host's processors and their memory, by RAPL's counters (Linux, Documentation/power/powercap).

Since Linux 5.10 only root may read them by default. What they leave out are disks, fans, network and power supplies.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")


@dataclass
class Counter:
    """A zone's microjoules, which begin again at 0 behind `most`."""

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
    """One for each processor, and for its memory where that has its own; empty where there are none.

    A zone within a processor counts once, with its processor. Raises OSError where they may not be read, ValueError for
    what is none.
    """
    zones = [zone for zone in sorted(root.glob("intel-rapl:*")) if _is_counted(zone)]
    paths = [(zone / "energy_uj", int((zone / "max_energy_range_uj").read_text())) for zone in zones]
    return [Counter(path, most, int(path.read_text())) for path, most in paths]


def joules(zones: list[Counter]) -> dict[str, float]:
    """Those of all zones since they were first read; empty where there are none."""
    return {"host_joules": sum(zone.read() for zone in zones) / 1e6} if zones else {}


def _is_counted(zone: Path) -> bool:
    name = (zone / "name").read_text().strip()
    return name == "dram" or (name.startswith("package-") and zone.name.count(":") == 1)
