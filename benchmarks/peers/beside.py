"""What the benchmarks of steps beside peers share: turns on one device, their rows, and the tables made of the rows.

    python benchmarks/peers/beside.py ROWS.csv...

prints the tables of rows that the benchmarks wrote. A ratio's two sides are of the same round of one call, on one GPU
and at one commit; rows that are not are refused. A round steps every variant, each round in the reverse order of the
one before, so that a linear drift cancels.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch

from benchmarks.peers.turns import Turns
from benchmarks.steps.device_kernels import wait
from tracking.machine.environment import nvml

Step = Callable[[], Any]
Row = dict[str, Any]

OURS, AS_IT_COMES = "ours", "as it comes"
SETTLING = 3  # steps before each turn
MACHINE = ("gpu", "cores", "host", "driver", "torch", "commit")
FIELDS = (
    "model", "batch", "precision", "variant", "round", "steps", "step_ms", "step_ms_sd", "rate", "unit", "padding",
    "gmac_forward", "warmup_sec", "peak_gib", *MACHINE,
)  # fmt: skip
BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Variant:
    """A step that can be repeated. The peer's name and its tuning are parted by ": " in a variant's name."""

    step: Step
    work: float  # images, samples or tokens of a mean step
    padding: float | None = None  # share of a batch's places without a token
    about: dict[str, Any] = field(default_factory=dict)  # what else its rows say, by the names of FIELDS


@dataclass(frozen=True)
class Comparison:
    """A model, what its batches have room for, and the unit of its rates."""

    model: str
    batch: int
    unit: str
    precision: str


def steps_ms(step: Step, num: int, device: torch.device) -> list[float]:
    """Milliseconds from each step to the next: by CUDA events, or the host's clock on a CPU."""
    for _ in range(SETTLING):
        step()
    wait(device)
    if device.type != "cuda":
        times = [time.perf_counter()]
        for _ in range(num):
            step()
            times.append(time.perf_counter())
        return [1e3 * (after - before) for before, after in pairwise(times)]
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(num + 1)]
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    wait(device)
    return [before.elapsed_time(after) for before, after in pairwise(marks)]


def in_turns(
    compared: Comparison, ready: dict[str, Variant], asked: argparse.Namespace, device: torch.device,
    prepare: Callable[[str], None] = lambda name: None, seconds: float = math.inf,
) -> list[Row]:  # fmt: skip
    """A row a variant and round. No further round begins that would probably last beyond `seconds` of rounds."""
    rows: list[Row] = []
    longest, end = 0.0, time.perf_counter() + seconds
    for number in range(asked.rounds):
        begun = time.perf_counter()
        if number and begun + longest > end:
            print(f"{compared.model}: {number} of {asked.rounds} rounds, since the time is over", flush=True)
            break
        for name in list(ready) if number % 2 == 0 else reversed(ready):
            prepare(name)
            times = steps_ms(ready[name].step, asked.steps, device)
            rows.append(row_of(compared, name, ready[name], number, times) | machine(asked.commit, device))
            print(f"{compared.model}, round {number}, {name}: {rows[-1]['step_ms']} ms", flush=True)
        longest = max(longest, time.perf_counter() - begun)
    return rows


def row_of(compared: Comparison, name: str, variant: Variant, number: int, times: list[float]) -> Row:
    mean = statistics.mean(times)
    measured = {
        "variant": name, "round": number, "steps": len(times), "step_ms": f"{mean:.5g}",
        "step_ms_sd": f"{statistics.stdev(times):.3g}" if len(times) > 1 else "",
        "rate": f"{1e3 * variant.work / mean:.6g}",
        "padding": "" if variant.padding is None else f"{variant.padding:.4f}",
    }  # fmt: skip
    return vars(compared) | measured | variant.about


def machine(commit: str, device: torch.device) -> Row:
    """Where and of what a row is. `host` differs between machines, and between two starts of one."""
    gpu = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    host = BOOT.read_text()[:8] if BOOT.exists() else ""
    of_host = {"cores": len(os.sched_getaffinity(0)), "host": host, "driver": nvml.driver_version() or ""}
    return {"gpu": gpu, **of_host, "torch": torch.__version__, "commit": commit}


def commit() -> str:
    git = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return git.stdout.strip() or "unknown"


def add_arguments(parser: argparse.ArgumentParser, steps: int, rounds: int) -> None:
    """The options that all of these benchmarks have."""
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16", "fp16"), default="bf16")
    parser.add_argument("--steps", type=int, default=steps, help="timed steps of a variant's turn")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--commit", default=commit(), help="where the checkout has no .git")
    parser.add_argument("--out", type=Path, help="write the rows as CSV, after each model and batch")
    parser.add_argument("--turns", type=Turns, default=Turns(), help="a file: with others that have it, time in turns")


def report(rows: Sequence[Row], out: Path | None) -> None:
    if out:
        with out.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, restval="")
            writer.writeheader()
            writer.writerows(rows)
    print(tables(rows), flush=True)


def tables(rows: Sequence[Row]) -> str:
    of_machines = "\n".join(machines(rows))
    return f"\n{table(rows)}\n\n{summary(rows)}\n\n{of_machines}\n"


def read(paths: Iterable[Path]) -> list[Row]:
    rows: list[Row] = []
    for path in paths:
        with path.open(encoding="utf-8", newline="") as file:
            rows += csv.DictReader(file)
    return rows


def comparisons(rows: Iterable[Row]) -> list[tuple[Row, dict[str, list[Row]]]]:
    """The first row and the rows by variant of each model and batch, in the order of the rows.

    Raises ValueError where a model's rows are not of one machine and commit, or a variant lacks a round of ours: such
    rates make no ratio.
    """
    compared = []
    for (model, batch), own in groupby(rows, key=lambda row: (row["model"], row["batch"])):
        of_model = list(own)
        if len({tuple(str(row[key]) for key in MACHINE) for row in of_model}) > 1:
            raise ValueError(f"{model}, {batch}: the rows are of several machines or commits, and make no ratio")
        variants: dict[str, list[Row]] = {}
        for row in sorted(of_model, key=lambda row: int(row["round"])):
            variants.setdefault(row["variant"], []).append(row)
        for name, of_variant in variants.items():
            if [row["round"] for row in of_variant] != [row["round"] for row in variants.get(OURS, ())]:
                raise ValueError(f"{model}, {batch}: {name} and ours are not of the same rounds")
        compared.append((of_model[0], variants))
    return compared


def floats(rows: Iterable[Row], key: str) -> list[float]:
    return [float(row[key]) for row in rows]


def ratios(variants: dict[str, list[Row]], name: str) -> list[float]:
    """How many times as fast ours is, in each round."""
    pairs = zip(floats(variants[OURS], "rate"), floats(variants[name], "rate"), strict=True)
    return [ours / peer for ours, peer in pairs]


def spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation, to the second digit of the deviation; of one value four digits."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    mean = statistics.mean(values)
    places = (1 if deviation else 3) - math.floor(math.log10(deviation or mean))
    shown = [f"{round(value, places):,.{max(0, places)}f}" for value in (mean, deviation)]
    return " ± ".join(shown if deviation else shown[:1])


def table(rows: Sequence[Row]) -> str:
    """Markdown: every variant of every model and batch, with both sides of each ratio."""
    lines = [
        "| model, batch | step | rounds x steps | ms a step | rate | padding | ours over it |",
        "|---|---|---|---|---|---|---|",
    ]
    for first, variants in comparisons(rows):
        what = f"{first['model']}, {int(first['batch']):,}"
        for name in sorted(variants, key=lambda name: not name.startswith(OURS)):
            own = variants[name]
            padding = own[0].get("padding", "")
            cells = [
                what, f"**{name}**" if name == OURS else name, f"{len(own)} x {own[0]['steps']}",
                spread(floats(own, "step_ms")), f"{spread(floats(own, 'rate'))} {first['unit']}",
                f"{float(padding):.0%}".replace("%", " %") if padding else "",
                "" if name.startswith(OURS) else times_as_fast(ratios(variants, name)),
            ]  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def times_as_fast(values: list[float]) -> str:
    """Mean of ratios, and the least and greatest of the rounds'."""
    of_rounds = f" ({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{of_rounds}"


def summary(rows: Sequence[Row]) -> str:
    """Markdown: our rate of every model and batch, and the ratios to its first peer as it comes, and at its fastest."""
    lines = [
        "| model, batch | ours | times the peer's rate as it comes | times the peer's rate tuned |",
        "|---|---|---|---|",
    ]
    for first, variants in comparisons(rows):
        peer = next((name.partition(":")[0] for name in variants if not name.startswith(OURS)), "")
        plain = f"{peer}: {AS_IT_COMES}"
        tuned = [name for name in variants if name.startswith(f"{peer}: ") and name != plain]
        fastest = max(tuned, key=lambda name: statistics.mean(floats(variants[name], "rate")), default="")
        ours = [
            f"{first['model']}, {int(first['batch']):,}",
            f"{spread(floats(variants[OURS], 'rate'))} {first['unit']}",
        ]
        cells = [times_as_fast(ratios(variants, name)) if name in variants else "" for name in (plain, fastest)]
        lines.append(f"| {' | '.join([*ours, *cells])}{fastest.partition(':')[2].replace(' ', ': ', 1)} |")
    return "\n".join(lines)


def machines(rows: Iterable[Row]) -> list[str]:
    """Each machine and commit of rows, once."""
    return list(dict.fromkeys(", ".join(f"{key} {row[key]}" for key in MACHINE if row[key] != "") for row in rows))


if __name__ == "__main__":
    print(tables(read(Path(path) for path in sys.argv[1:])))
