"""Finds another software stack that trained the same faster, among the runs beside a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from conf.schema import RunConfig
from tracking.base import quantities
from tracking.machine.environment import fingerprint
from tracking.record import documents, run_folder

MAX_FOLDERS = 50  # newest runs beside a run that are read
MIN_RUNS = 2  # of the other stack; a single one may be luck
MIN_FACTOR = 1.05


@dataclasses.dataclass(frozen=True)
class QuickerStack:
    """A stack and its number of runs. `factor`: rate of its slowest run / rate of the quickest run on the own stack."""

    name: str
    num_runs: int
    factor: float


def of_run(folder: Path) -> QuickerStack | None:
    """The quickest other stack in the folder's parent, by finished runs that differ in stack and seed alone.

    None without the run's own rate, or if no stack with MIN_RUNS has a factor of MIN_FACTOR.
    """
    own = _read(folder)
    if own is None:
        return None
    config, hardware_id, rate = own
    rates = {config.stack.name: [rate]}
    for other, other_hardware_id, other_rate in _beside(folder):
        same_stack = dataclasses.replace(other, seed=config.seed, stack=config.stack)
        if other_hardware_id == hardware_id and same_stack.config_hash() == config.config_hash():
            rates.setdefault(other.stack.name, []).append(other_rate)
    quickest = max(rates.pop(config.stack.name))
    stacks = [QuickerStack(name, len(row), min(row) / quickest) for name, row in rates.items() if len(row) >= MIN_RUNS]
    best = max(stacks, key=lambda stack: stack.factor, default=None)
    return best if best is not None and best.factor >= MIN_FACTOR else None


def _beside(folder: Path) -> Iterator[tuple[RunConfig, str, float]]:
    names = sorted((path for path in folder.parent.iterdir() if path != folder), reverse=True)
    for path in names[:MAX_FOLDERS]:
        if run := _read(path):
            yield run


def _read(folder: Path) -> tuple[RunConfig, str, float] | None:
    """The request, the hardware and the samples a second of a finished run; None for any other folder."""
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):  # a damaged or another folder
        result = run_folder.read_result(folder)
        rate = result.metrics.get(quantities.THROUGHPUT_SAMPLES_PER_SEC) if result and not result.failure else None
        tags = fingerprint.tags(documents.read_json(folder / run_folder.FINGERPRINT))
        if rate:
            return run_folder.read_config(folder), tags["env.hardware_id"], rate
    return None
