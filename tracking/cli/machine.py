"""python -m tracking fingerprint, ceilings and cache: this machine's environment, highest rates and compiled code.

JSON: `fingerprint` has the document that a run keeps as fingerprint.json (docs/run-record.md); `ceilings` has
`environment`, `software`, `ceilings` by name (unit, median, lowest, highest, n, counters), `missing` (reasons by name),
`num_gpus`, `time_ms`, and `path`, the file that keeps them; `cache` has `file`, `identity` (the environment of the
compiled code), `folders` (by compiler), `num_files`, `num_new` (files that an import added) and `size_bytes` (of all
files).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracking.base import installation
from tracking.base.number_text import significant
from tracking.cli.command_type import SUCCESS, Answer, Command, Refused

if TYPE_CHECKING:
    from tracking.measure.bottleneck import Ceilings

TIMEOUT_SEC = 300.0  # A pair of GPUs takes 1.6 s each way, so the 28 pairs of eight GPUs take 90 s.
SCALES = {"FLOP/s": (1e12, "TFLOP/s"), "B/s": (1e9, "GB/s")}


def no_arguments(parser: argparse.ArgumentParser) -> None:
    """A command without options."""


def fingerprint(arguments: argparse.Namespace) -> Answer:
    from tracking.machine.environment import Collector, format_table

    collector = Collector()
    import torch  # It tells which libraries it loaded. nvidia-smi runs meanwhile, and takes as long.

    facts = collector.finish(torch)
    return Answer(SUCCESS, facts, lambda: print(format_table(facts)))


def ceilings_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--disk", type=Path, default=Path(), metavar="FOLDER", help="a folder on the disk to measure (default: here)"
    )
    parser.add_argument("--show", action="store_true", help="show earlier measurements; measure nothing")


def ceilings(arguments: argparse.Namespace) -> Answer:
    """Measure the ceilings, or show the kept ones. Raises Refused if none are kept, or if measuring fails."""
    from tracking.machine.environment import Collector
    from tracking.machine.environment import fingerprint as fingerprints
    from tracking.measure.bottleneck import Ceilings
    from tracking.measure.bottleneck import ceilings as stored_ceilings

    collector = Collector()
    if not arguments.disk.is_dir():
        raise Refused(f"--disk {arguments.disk}: no such folder. Next: give one on the disk to measure")
    tags = fingerprints.tags(collector.finish())
    if arguments.show:
        stored = stored_ceilings.of_hardware(tags)
        if stored is None:
            raise Refused("--show: no ceilings were measured on this hardware. Next: leave it out, to measure them")
        return Answer(SUCCESS, dataclasses.asdict(stored) | {"path": None}, lambda: show(stored, None))
    measurements = measured(arguments.disk)
    environment = {key: value for key, value in tags.items() if key.startswith("env.")}
    new = Ceilings(environment=environment, time_ms=time.time_ns() // 1_000_000, **measurements)
    path = stored_ceilings.save(new)
    return Answer(SUCCESS, dataclasses.asdict(new) | {"path": str(path)}, lambda: show(new, path))


def measured(folder: Path) -> dict[str, Any]:
    """The ceilings, measured in a separate process. If it fails, raises Refused with its last line."""
    command = [sys.executable, "-m", installation.module("trainers.ceilings"), str(folder.absolute())]
    # GPUs in NVML's order, which names their pairs.
    environment = os.environ | {"PYTHONPATH": str(installation.SEARCH_FOLDER), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    try:
        process = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SEC, check=False
        )
    except subprocess.TimeoutExpired:
        raise Refused(
            f"the ceilings were not measured within {TIMEOUT_SEC:g} s. Next: check with nvidia-smi whether the GPU is"
            " busy, and try again"
        ) from None
    if process.returncode:
        last_line = (process.stderr.strip().splitlines() or ["no message"])[-1]
        raise Refused(
            f"the ceilings could not be measured: {last_line}. Next: check this machine with"
            f" {installation.TRACKING} doctor"
        )
    return dict(json.loads(process.stdout.splitlines()[-1]))


def show(stored: Ceilings, path: Path | None) -> None:
    from rich.table import Table

    from tracking.base.console import make_console

    parts = [stored.environment.get(tag, "none") for tag in ("env.gpu", "env.cpu")]
    table = Table(title=f"ceilings of {', '.join(part for part in parts if part != 'none')}")
    for column in ("ceiling", "median", "lowest to highest", "n"):
        table.add_column(column, justify="left" if column == "ceiling" else "right")
    for name, row in stored.ceilings.items():
        factor, unit = SCALES[row["unit"]]
        low, median, high = (row[key] / factor for key in ("lowest", "median", "highest"))
        table.add_row(
            name, f"{significant(median, 4)} {unit}", f"{significant(low, 4)} to {significant(high, 4)}", str(row["n"])
        )
    console = make_console()
    console.print(table)
    for name, why in stored.missing.items():
        console.print(f"missing: {name}: {why}", soft_wrap=True)
    if path is not None:
        console.print(f"kept in {path}", soft_wrap=True)


def cache_arguments(parser: argparse.ArgumentParser) -> None:
    direction = parser.add_mutually_exclusive_group(required=True)
    direction.add_argument(
        "--export", type=Path, metavar="FILE", help="write the code that PyTorch and Triton compiled on this machine"
    )
    direction.add_argument("--import", type=Path, metavar="FILE", dest="source", help="add the code of such a file")
    parser.add_argument("--trust", action="store_true", help="import another user's file, whose code will be executed")


def cache(arguments: argparse.Namespace) -> Answer:
    """Export or import compiled code. Raises Refused or ValueError for missing code, or a file of another stack."""
    from tracking.machine import compiled
    from tracking.machine.environment import Collector, compiler_folders, fingerprint

    if arguments.source and not arguments.source.is_file():
        reason = "is not a file" if arguments.source.exists() else "no such file"
        raise Refused(
            f"--import {arguments.source}: {reason}. Next: give one that --export made on a machine like this one"
        )
    if arguments.export and arguments.trust:
        raise Refused("--trust: has no effect with --export. Next: leave it out, and give it with --import")
    folders = compiler_folders(os.environ)
    collector = Collector()
    import torch  # It tells which libraries it loaded.

    identity = compiled.identity(fingerprint.tags(collector.finish(torch)))
    if arguments.export:
        file, files = arguments.export.absolute(), compiled.export(arguments.export.absolute(), folders, identity)
        num_new = len(files)
    else:
        file = arguments.source.absolute()
        files, num_new = compiled.import_file(file, folders, identity, arguments.trust)
    size = sum(entry.size for entry in files.values())
    folder_list = " and ".join(map(str, folders.values()))
    summary = (
        f"{file}: {len(files)} files, {size / 1e6:.1f} MB, from {folder_list}"
        if arguments.export
        else f"{len(files)} files, {size / 1e6:.1f} MB; new in {folder_list}: {num_new}"
    )
    document = {
        "file": str(file),
        "identity": identity,
        "folders": {name: str(folder) for name, folder in folders.items()},
        "num_files": len(files),
        "num_new": num_new,
        "size_bytes": size,
    }
    return Answer(SUCCESS, document, lambda: print(summary))


CACHE = Command(
    "cache", "export or import compiled code, to spare other machines the compiling", cache_arguments, cache
)
FINGERPRINT = Command("fingerprint", "print the environment that a run would record", no_arguments, fingerprint)
CEILINGS = Command("ceilings", "measure the highest rates of this hardware", ceilings_arguments, ceilings)
