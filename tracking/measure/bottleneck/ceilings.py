"""The ceilings of a kind of hardware: measured once, kept in the cache, and read to explain runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracking.machine.environment import cache, is_trusted, private_folder
from tracking.record import documents, typed_json

FOLDER = "ceilings"
NAME = "ceilings.json"  # a run's folder keeps a copy under this name
KEYS = ("env.gpu", "env.cpu")  # the tags that identify a kind of hardware
DRAM = "dram_bandwidth_percentage"


@dataclass
class Ceilings:
    """Measured ceilings by name, each with unit, median, lowest, highest, n, and NVML's counters meanwhile."""

    environment: dict[str, str] = field(default_factory=dict)  # env.* tags of the machine
    software: dict[str, Any] = field(default_factory=dict)  # versions of torch and CUDA during the measurement
    ceilings: dict[str, dict[str, Any]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)  # ceilings that could not be measured, with the reason
    num_gpus: int = 0
    time_ms: int = 0

    def rate(self, name: str) -> float | None:
        """The median of a ceiling; None if it was not measured."""
        measured = self.ceilings.get(name)
        return float(measured["median"]) if measured else None

    def counter(self, name: str, counter: str) -> float | None:
        """A counter's value while a ceiling was measured; None if it is absent or 0."""
        value = self.ceilings.get(name, {}).get("counters", {}).get(counter)
        return float(value) if value else None

    def dram_bytes_per_percent(self) -> float | None:
        """Bytes/s of the GPU's memory for each percent of its counter, calibrated by a copy of known size."""
        rate, percentage = self.rate("copy"), self.counter("copy", DRAM)
        return rate / percentage if rate and percentage else None


def path_of(hardware_id: str) -> Path:
    return cache() / FOLDER / f"{hardware_id}.json"


def save(measured: Ceilings) -> Path:
    """Keep ceilings in the cache; return the file. Raises OSError, and ValueError if the hardware is not known."""
    hardware_id = measured.environment.get("env.hardware_id")
    if not hardware_id:
        raise ValueError("no hardware id for this machine, so its ceilings cannot be kept. Next: see `fingerprint`")
    path = path_of(hardware_id)
    private_folder(FOLDER)
    documents.write_json(path, measured)
    return path


def read(path: Path) -> Ceilings:
    """The ceilings in a file. Raises OSError, and ValueError for another content."""
    return typed_json.checked(Ceilings, documents.read_json(path), path)


def copy_into(folder: Path, tags: Mapping[str, str]) -> None:
    """Copy the ceilings of a run's hardware into its folder, to record what the run was judged by."""
    measured = of_hardware(tags)
    if measured is not None and not (folder / NAME).exists():
        documents.write_json(folder / NAME, measured)


def read_from(folder: Path) -> Ceilings | None:
    """The ceilings in a run's folder, or None. Raises OSError, and ValueError for a damaged file."""
    return read(folder / NAME) if (folder / NAME).exists() else None


def of_hardware(tags: Mapping[str, str]) -> Ceilings | None:
    """The ceilings of a run's hardware: with the same id, else with the same GPU and CPU in any number.

    None without a measurement. Unreadable and untrusted files are skipped.
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
