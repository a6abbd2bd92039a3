"""Advice to MiniGo on a CPU, tested by being taken: runs that are slow on purpose, beside runs that follow it.

    python benchmarks/steps/advice_taken.py            # some 5 minutes on one shared core

Each pair differs in one option, which the slow run's advice names. Slow and taken runs take turns in one sweep, a pair
of each seed, and have as many games and training samples. Prints a Markdown table: how often the slow run's verdict
named the limit and the option, the limit's share of the time, and seconds on the clock. Each run also prints a line of
JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
Sides = tuple[dict[str, Any], dict[str, Any]]  # results of a slow run and of one that takes the advice
OPTIONS = (
    "gpus=0", "stop_at_target=false", "tracking.offline=true", "tracking.system_metrics_interval_sec=0.5",
    "model=minigo", "recipe=minigo_cpu", "max_epochs=1", "log_every_n_steps=2", "model.eval_every_samples=2048",
    "model.hparams.games=16", "model.hparams.readouts=8", "model.hparams.examples=2048", "model.hparams.eval_games=2",
)  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """A slow run, and the same with another value of the option that the advice names."""

    options: Sequence[str]
    option: str
    slow: int
    taken: int


PAIRS = {  # by the limit
    "selfplay": Pair(("model.hparams.gate_games=2", "model.hparams.match_readouts=4"), "games_at_once", 1, 16),
    "gate": Pair(("model.hparams.gate_games=16",), "match_readouts", 64, 8),
}


def in_turns(pair: Pair, seeds: int) -> list[Sides]:
    """Results of both sides of each seed, on one core: with more, the threads of a step wait for other processes'."""
    core = str(min(os.sched_getaffinity(0)))
    swept = f"model.hparams.{pair.option}={pair.slow},{pair.taken}"
    with tempfile.TemporaryDirectory() as folder:
        seeded = f"seed={','.join(map(str, range(1, seeds + 1)))}"
        command = [sys.executable, str(ROOT / "launch.py"), "-m", seeded, swept, *pair.options, *OPTIONS]
        command = ["taskset", "-c", core, *command, f"runs_dir={folder}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        ended = sorted(Path(folder).glob("*/*/result.json"), key=lambda path: path.stat().st_mtime)
        runs = [json.loads(path.read_text(encoding="utf-8")) for path in ended]
    return list(zip(runs[::2], runs[1::2], strict=True))


def row(cause: str, pair: Pair, runs: Sequence[Sides]) -> str:
    limits = [before["bottleneck"] for before, _ in runs]
    named = sum(limit["cause"] == cause and pair.option in limit["next"] for limit in limits)
    shares = ", ".join(f"{100 * limit['shares'].get(cause, 0.0):.0f}" for limit in limits)
    slow, taken = ([run["bottleneck"]["total_sec"] for run in side] for side in zip(*runs, strict=True))
    ratios = [before / after for before, after in zip(slow, taken, strict=True)]
    spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    times = [f"{statistics.median(side):.1f}" for side in (slow, taken)]
    change = f"`{pair.option}`: {pair.slow}, {pair.taken}"
    return f"| {' | '.join([f'`{cause}`', change, f'{named} of {len(runs)}', f'{shares} %', *times, spread])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", nargs="+", choices=PAIRS, default=list(PAIRS))
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    rows = []
    for name in arguments.pairs:
        runs = in_turns(PAIRS[name], arguments.seeds)
        for side, result in [row for both in runs for row in zip(("slow", "taken"), both, strict=True)]:
            kept = {key: result["bottleneck"][key] for key in ("words", "next", "total_sec")}
            print(json.dumps({"pair": name, "side": side, **kept}), flush=True)
        rows.append(row(name, PAIRS[name], runs))
    print("| limit | slow, taken | named | its share | slow (s) | taken (s) | times as fast |")
    print(f"|{'---|' * 7}")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
