"""python -m tracking fingerprint, ceilings and cache: what this machine is, can do at most, and has compiled.

JSON: of `fingerprint`: the document that a run keeps as fingerprint.json, every value (docs/measurement.md); of
`ceilings`: `environment`, `software`, `ceilings` by name (unit, median, lowest, highest, n, counters), `missing` (why),
`num_gpus`, `time_ms`, and `path`, the file where they are kept; of `cache`: `file`, `identity` (for what it was
compiled), `folders` (by compiler), `num_files`, `num_new` (files that an import has put into them) and `size_bytes` (of
all files).
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
from tracking.cli.command_type import WELL, Answer, Command, Refused

if TYPE_CHECKING:
    from tracking.measure.bottleneck import Ceilings

LONGEST_SEC = 300.0  # Each pair of GPUs takes 1.6 s each way, so that the 28 pairs of eight take a minute and a half.
SCALES = {"FLOP/s": (1e12, "TFLOP/s"), "B/s": (1e9, "GB/s")}


def no_arguments(parser: argparse.ArgumentParser) -> None:
    """It has no options of its own."""


def fingerprint(arguments: argparse.Namespace) -> Answer:
    from tracking.machine.environment import Collector, format_table

    collector = Collector()
    import torch  # It tells what it has loaded. Meanwhile nvidia-smi runs, which takes as long.

    taken = collector.finish(torch)
    return Answer(WELL, taken, lambda: print(format_table(taken)))


def ceilings_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--disk",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="a folder on the disk that data are read from (here)",
    )
    parser.add_argument("--show", action="store_true", help="show those that were measured before; measure nothing")


def ceilings(arguments: argparse.Namespace) -> Answer:
    """Refused where the folder is none, where the hardware is not known, or where the measurement fails."""
    from tracking.machine.environment import Collector
    from tracking.machine.environment import fingerprint as fingerprints
    from tracking.measure.bottleneck import Ceilings
    from tracking.measure.bottleneck import ceilings as kept

    collector = Collector()
    if not arguments.disk.is_dir():
        raise Refused(f"--disk {arguments.disk}: no such folder; give one on the disk that is to be measured")
    tags = fingerprints.tags(collector.finish())
    if arguments.show:
        known = kept.of_hardware(tags)
        if known is None:
            raise Refused("no ceilings were measured on this hardware; leave out --show to measure them")
        return Answer(WELL, dataclasses.asdict(known) | {"path": None}, lambda: show(known, None))
    content = measured(arguments.disk)
    environment = {key: value for key, value in tags.items() if key.startswith("env.")}
    new = Ceilings(environment=environment, time_ms=time.time_ns() // 1_000_000, **content)
    path = kept.save(new)
    return Answer(WELL, dataclasses.asdict(new) | {"path": str(path)}, lambda: show(new, path))


def measured(folder: Path) -> dict[str, Any]:
    """What a process of its own measures. Raises Refused with its last words where it fails."""
    command = [sys.executable, "-m", installation.module("trainers.ceilings"), str(folder.absolute())]
    # GPUs in the order of NVML, by which their pairs are named.
    environment = os.environ | {"PYTHONPATH": str(installation.SEARCH_FOLDER), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LONGEST_SEC, check=False
        )
    except subprocess.TimeoutExpired:
        raise Refused(f"the ceilings were not measured within {LONGEST_SEC:g} s: is the GPU busy?") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise Refused(f"the ceilings could not be measured: {last}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def show(known: Ceilings, path: Path | None) -> None:
    from rich.table import Table

    from tracking.base.console import make_console

    parts = [known.environment.get(tag, "none") for tag in ("env.gpu", "env.cpu")]
    table = Table(title=f"ceilings of {', '.join(part for part in parts if part != 'none')}")
    for column in ("ceiling", "median", "lowest to highest", "n"):
        table.add_column(column, justify="left" if column == "ceiling" else "right")
    for name, row in known.ceilings.items():
        factor, unit = SCALES[row["unit"]]
        low, middle, high = (row[key] / factor for key in ("lowest", "median", "highest"))
        table.add_row(name, f"{middle:,.4g} {unit}", f"{low:,.4g} to {high:,.4g}", str(row["n"]))
    console = make_console()
    console.print(table)
    for name, why in known.missing.items():
        console.print(f"missing: {name}: {why}", soft_wrap=True)
    if path is not None:
        console.print(f"kept in {path}", soft_wrap=True)


def cache_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--export", type=Path, metavar="FILE", help="write what PyTorch and Triton have compiled on this machine"
    )
    what.add_argument("--import", type=Path, metavar="FILE", dest="source", help="take over such a file")
    parser.add_argument("--trust", action="store_true", help="import a file that somebody else made: it is executed")


def cache(arguments: argparse.Namespace) -> Answer:
    """Refused where there is nothing to export, and where an import is damaged, foreign or of no use here."""
    from tracking.machine import compiled
    from tracking.machine.environment import Collector, compiler_folders, fingerprint

    if arguments.source and not arguments.source.is_file():
        raise Refused(f"--import {arguments.source}: no such file; make one with --export on a machine like this one")
    if arguments.export and arguments.trust:
        raise Refused("--trust has no effect with --export: it is whoever imports that trusts")
    folders = compiler_folders(os.environ)
    collector = Collector()
    import torch  # It tells what it has loaded.

    identity = compiled.identity(fingerprint.tags(collector.finish(torch)))
    if arguments.export:
        file, listed = arguments.export.absolute(), compiled.export(arguments.export.absolute(), folders, identity)
        num_new = len(listed)
    else:
        file = arguments.source.absolute()
        listed, num_new = compiled.import_file(file, folders, identity, arguments.trust)
    size = sum(each.size for each in listed.values())
    where = " and ".join(map(str, folders.values()))
    words = (
        f"{file}: {len(listed)} files, {size / 1e6:.1f} MB, of {where}"
        if arguments.export
        else f"{len(listed)} files, {size / 1e6:.1f} MB, of which {num_new} are new in {where}"
    )
    document = {
        "file": str(file),
        "identity": identity,
        "folders": {name: str(folder) for name, folder in folders.items()},
        "num_files": len(listed),
        "num_new": num_new,
        "size_bytes": size,
    }
    return Answer(WELL, document, lambda: print(words))


CACHE = Command("cache", "carry what was compiled here to another machine, as one file", cache_arguments, cache)
FINGERPRINT = Command("fingerprint", "print the environment that a run would record", no_arguments, fingerprint)
CEILINGS = Command("ceilings", "measure what this hardware can do at most", ceilings_arguments, ceilings)
