"""Time steps of several variants in turns on one device; write the rows, and make tables of them.

    python benchmarks/peers/beside.py ROWS.csv...

prints the tables of rows that the benchmarks wrote. Both sides of a ratio come from the same round, GPU and commit;
other rows raise an error. A round steps every variant, in the reverse order of the round before, so that a linear
drift cancels.
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
SETTLING = 3  # untimed steps before each turn
MACHINE = ("gpu", "cores", "host", "driver", "torch", "commit")
FIELDS = (
    "model", "batch", "precision", "variant", "round", "steps", "step_ms", "step_ms_sd", "rate", "unit", "padding",
    "gmac_forward", "warmup_sec", "peak_gib", *MACHINE,
)  # fmt: skip
BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Variant:
    """A repeatable step and its work. A variant is named "peer: tuning"."""

    step: Step
    work: float  # images, samples or tokens: mean of a step
    padding: float | None = None  # share of padding in a batch
    about: dict[str, Any] = field(default_factory=dict)  # further FIELDS of its rows


@dataclass(frozen=True)
class Comparison:
    """A model, its batch size, the unit of its rates, and the precision."""

    model: str
    batch: int
    unit: str
    precision: str


def steps_ms(step: Step, num: int, device: torch.device) -> list[float]:
    """Milliseconds from each step to the next: by CUDA events, or by the host's clock on a CPU."""
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
    compared: Comparison, ready: dict[str, Variant], arguments: argparse.Namespace, device: torch.device,
    prepare: Callable[[str], None] = lambda name: None, seconds: float = math.inf,
) -> list[Row]:  # fmt: skip
    """A row for each variant and round. No round begins that would probably end after `seconds`."""
    rows: list[Row] = []
    longest, end = 0.0, time.perf_counter() + seconds
    for number in range(arguments.rounds):
        begun = time.perf_counter()
        if number and begun + longest > end:
            print(f"{compared.model}: {number} of {arguments.rounds} rounds: the time is up", flush=True)
            break
        for name in list(ready) if number % 2 == 0 else reversed(ready):
            prepare(name)
            times = steps_ms(ready[name].step, arguments.steps, device)
            rows.append(row_of(compared, name, ready[name], number, times) | machine(arguments.commit, device))
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
    """The machine, versions and commit of a row. `host` differs between machines, and between boots of one."""
    gpu = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    host = BOOT.read_text()[:8] if BOOT.exists() else ""
    host_facts = {"cores": len(os.sched_getaffinity(0)), "host": host, "driver": nvml.driver_version() or ""}
    return {"gpu": gpu, **host_facts, "torch": torch.__version__, "commit": commit}


def commit() -> str:
    git = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return git.stdout.strip() or "unknown"


def add_arguments(parser: argparse.ArgumentParser, steps: int, rounds: int) -> None:
    """Add the options that all of these benchmarks share."""
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16", "fp16"), default="bf16")
    parser.add_argument("--steps", type=int, default=steps, help="timed steps in a turn of a variant")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--commit", default=commit(), help="for a checkout without .git")
    parser.add_argument("--out", type=Path, help="CSV file of the rows, written after each model and batch")
    parser.add_argument(
        "--turns", type=Turns, default=Turns(), help="lock file; benchmarks that share it time in turns"
    )


def report(rows: Sequence[Row], out: Path | None) -> None:
    if out:
        with out.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, restval="")
            writer.writeheader()
            writer.writerows(rows)
    print(tables(rows), flush=True)


def tables(rows: Sequence[Row]) -> str:
    hosts = "\n".join(machines(rows))
    return f"\n{table(rows)}\n\n{summary(rows)}\n\n{hosts}\n"


def read(paths: Iterable[Path]) -> list[Row]:
    rows: list[Row] = []
    for path in paths:
        with path.open(encoding="utf-8", newline="") as file:
            rows += csv.DictReader(file)
    return rows


def comparisons(rows: Iterable[Row]) -> list[tuple[Row, dict[str, list[Row]]]]:
    """The first row and the rows by variant of each model and batch, in the order of the rows.

    Raises ValueError if a model's rows come from several machines or commits, or if a variant and ours have different
    rounds.
    """
    compared = []
    for (model, batch), group in groupby(rows, key=lambda row: (row["model"], row["batch"])):
        model_rows = list(group)
        if len({tuple(str(row[key]) for key in MACHINE) for row in model_rows}) > 1:
            raise ValueError(f"{model}, {batch}: the rows are of several machines or commits; compare rows of one")
        variants: dict[str, list[Row]] = {}
        for row in sorted(model_rows, key=lambda row: int(row["round"])):
            variants.setdefault(row["variant"], []).append(row)
        for name, variant_rows in variants.items():
            if [row["round"] for row in variant_rows] != [row["round"] for row in variants.get(OURS, ())]:
                raise ValueError(f"{model}, {batch}: {name} and ours have different rounds")
        compared.append((model_rows[0], variants))
    return compared


def floats(rows: Iterable[Row], key: str) -> list[float]:
    return [float(row[key]) for row in rows]


def ratios(variants: dict[str, list[Row]], name: str) -> list[float]:
    """Our rate divided by the variant's, for each round."""
    pairs = zip(floats(variants[OURS], "rate"), floats(variants[name], "rate"), strict=True)
    return [ours / peer for ours, peer in pairs]


def spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation, to the deviation's second digit; four digits of a single value."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    mean = statistics.mean(values)
    places = (1 if deviation else 3) - math.floor(math.log10(deviation or mean))
    shown = [f"{round(value, places):,.{max(0, places)}f}" for value in (mean, deviation)]
    return " ± ".join(shown if deviation else shown[:1])


def table(rows: Sequence[Row]) -> str:
    """Markdown table of all variants by model and batch, with both sides of each ratio."""
    lines = [
        "| model, batch | step | rounds x steps | ms a step | rate | padding | ours over it |",
        "|---|---|---|---|---|---|---|",
    ]
    for first, variants in comparisons(rows):
        what = f"{first['model']}, {int(first['batch']):,}"
        for name in sorted(variants, key=lambda name: not name.startswith(OURS)):
            group = variants[name]
            padding = group[0].get("padding", "")
            cells = [
                what, f"**{name}**" if name == OURS else name, f"{len(group)} x {group[0]['steps']}",
                spread(floats(group, "step_ms")), f"{spread(floats(group, 'rate'))} {first['unit']}",
                f"{float(padding):.0%}".replace("%", " %") if padding else "",
                "" if name.startswith(OURS) else times_as_fast(ratios(variants, name)),
            ]  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def times_as_fast(values: list[float]) -> str:
    """Mean of the rounds' ratios, with their minimum and maximum in brackets."""
    extremes = f" ({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{extremes}"


def summary(rows: Sequence[Row]) -> str:
    """Markdown table by model and batch: our rate, and its ratios to the first peer, as it comes and tuned best."""
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
    """The distinct machines and commits of the rows."""
    return list(dict.fromkeys(", ".join(f"{key} {row[key]}" for key in MACHINE if row[key] != "") for row in rows))


if __name__ == "__main__":
    print(tables(read(Path(path) for path in sys.argv[1:])))
