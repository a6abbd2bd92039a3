"""The ceilings of a kind of hardware: measured once, kept in the cache, and read wherever a run is explained."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracking.machine.environment import cache, is_trusted, private_folder
from tracking.record import documents, typed_json

FOLDER = "ceilings"
NAME = "ceilings.json"  # A run's folder keeps a copy.
KEYS = ("env.gpu", "env.cpu")  # tags of the hardware that ceilings are of
DRAM = "dram_bandwidth_percentage"


@dataclass
class Ceilings:
    """Each of `ceilings` has unit, median, lowest, highest, n and counters, which are what NVML's said meanwhile."""

    environment: dict[str, str] = field(default_factory=dict)  # env.* tags of the machine
    software: dict[str, Any] = field(default_factory=dict)  # torch and cuda that measured
    ceilings: dict[str, dict[str, Any]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)  # what could not be measured, and why
    num_gpus: int = 0
    time_ms: int = 0

    def rate(self, name: str) -> float | None:
        """The median of a ceiling; None where it was not measured."""
        measured = self.ceilings.get(name)
        return float(measured["median"]) if measured else None

    def counter(self, name: str, counter: str) -> float | None:
        """What a counter said while a ceiling was measured; None where it said nothing, or 0."""
        value = self.ceilings.get(name, {}).get("counters", {}).get(counter)
        return float(value) if value else None

    def dram_bytes_per_percent(self) -> float | None:
        """Bytes/s that the GPU's memory moves for each percent of its counter, by a copy of known size."""
        rate, percentage = self.rate("copy"), self.counter("copy", DRAM)
        return rate / percentage if rate and percentage else None


def path_of(hardware_id: str) -> Path:
    return cache() / FOLDER / f"{hardware_id}.json"


def save(measured: Ceilings) -> Path:
    """Keep them for this hardware. Raises OSError, and ValueError where the hardware is not known."""
    hardware_id = measured.environment.get("env.hardware_id")
    if not hardware_id:
        raise ValueError("this machine's hardware is not known well enough to keep ceilings for it: see `fingerprint`")
    path = path_of(hardware_id)
    private_folder(FOLDER)
    documents.write_json(path, measured)
    return path


def read(path: Path) -> Ceilings:
    """Raises OSError, and ValueError for what is none."""
    return typed_json.checked(Ceilings, documents.read_json(path), path)


def keep_in(folder: Path, tags: Mapping[str, str]) -> None:
    """Put what the cache has of a run's hardware into the run's folder, so that it says by what it was judged."""
    measured = of_hardware(tags)
    if measured is not None and not (folder / NAME).exists():
        documents.write_json(folder / NAME, measured)


def kept_in(folder: Path) -> Ceilings | None:
    """Those that a run's folder keeps, if it does. Raises OSError, and ValueError for what is none."""
    return read(folder / NAME) if (folder / NAME).exists() else None


def of_hardware(tags: Mapping[str, str]) -> Ceilings | None:
    """Those of a run's hardware: of the same id, else of the same GPU and CPU, of which it may have used fewer.

    None where none were measured. A file that cannot be read is as none.
    """
    folder = cache() / FOLDER
    exact = path_of(tags.get("env.hardware_id", ""))
    for path in [exact, *sorted(folder.glob("*.json"))]:
        try:
            measured = read(path)
        except (OSError, ValueError, json.JSONDecodeError):
            continue
        if not is_trusted(path):
            continue
        if path == exact or all(measured.environment.get(key) == tags.get(key) for key in KEYS):
            return measured
    return None
