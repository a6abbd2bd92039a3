"""Runs that `search.from` saves a search, and its cost where the earlier search misleads, by simulation.

    python -m benchmarks.reports.search_from --searches 200 --store from.jsonl

Each landscape (landscapes.py) is searched, then three others: the same one on quicker GPUs, which need larger batches
and scale worse; one with its optimum elsewhere; and a new one, as of another model. Each of the three is searched from
scratch, and from the first search. Noise is 5 %, without lumps.

Prints a row for each: runs until one is within 6 % of the best, exploring runs, all runs, and regret. Landscapes in the
store are not searched again.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.reports.landscapes import AXES, Landscape, landscape
from benchmarks.reports.search_peers import by_grid, searched
from tracking.analysis.search import EXPLORE, Answer, Rules, SearchTrial, answer

NOISE, NEAR = 0.05, 0.06
COLUMNS = ("searched", "begins with", "first within 6 % after", "explored", "all runs", "regret", "95th percentile")
HEAD = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|"
WAYS = ("nothing", "the earlier search")
Row = tuple[float, float, float, float]  # runs until one is near the best, exploring runs, all runs, regret


def others(world: Landscape) -> dict[str, Landscape]:
    """The landscapes searched after this one, by name. Each has its own noise."""
    anew = landscape(NOISE, lumps=False, misses=False, seed=world.seed + 500_000)
    return {
        "on other GPUs": replace(
            world, seed=world.seed + 1_000_000, epoch_sec=world.epoch_sec / 2, half=2 * world.half,
            scaling=max(0.6, world.scaling - 0.1),
        ),
        "with its optimum elsewhere": replace(
            world, seed=world.seed + 2_000_000, epoch_sec=world.epoch_sec / 2, half=18 - world.half,
            rate=1e-4 / world.rate * (5 if world.rate < 0.01 else 0.2), double=64 * 512 / world.double,
        ),
        "another model": replace(anew, seed=world.seed + 3_000_000),
    }  # fmt: skip


def search(world: Landscape, rules: Rules) -> tuple[Row, Answer, list[SearchTrial]]:
    """A search's row, answer and runs."""
    trials = searched(world, rules)
    result = answer(rules, trials)
    near = [world.true_time(trial.setting) <= (1 + NEAR) * world.best for trial in trials]
    first = near.index(True) + 1 if any(near) else len(trials)
    regret = math.inf if result.named is None else world.true_time(result.named) / world.best - 1
    return (first, result.num_explored, len(trials), regret), result, trials


def rows_of(seed: int) -> Iterator[tuple[str, str, Row]]:
    """Rows of one landscape: the name of what is searched, what the search begins with, and the row."""
    world = landscape(NOISE, lumps=False, misses=False, seed=seed)
    _, result, trials = search(world, Rules(AXES, budget=by_grid(world).cost / 3, seed=seed))
    assert result.named is not None
    starts = (result.named, *(figure.setting for figure in (result.best_by_group or {}).values()))
    earlier = tuple(replace(trial, phase=EXPLORE) for trial in trials)
    for name, other in others(world).items():
        rules = Rules(AXES, budget=by_grid(other).cost / 3, seed=seed)
        for way, each in zip(WAYS, (rules, replace(rules, starts=starts, earlier=earlier)), strict=True):
            yield name, way, search(other, each)[0]


def shown(rows: Sequence[Row]) -> str:
    first, explored, runs, regret = (
        (fmean(column), stdev(column) / len(column) ** 0.5) for column in zip(*rows, strict=True)
    )
    counts = [f"{mean:.1f} ± {error:.1f}" for mean, error in (first, explored, runs)]
    worst = float(np.quantile([row[-1] for row in rows], 0.95, method="higher"))
    return " | ".join([*counts, f"{100 * regret[0]:.2f} ± {100 * regret[1]:.2f} %", f"{100 * worst:.1f} %"])


def stored(store: Path | None) -> dict[int, list[tuple[str, str, Row]]]:
    if store is None or not store.exists():
        return {}
    return dict(map(json.loads, store.read_text().splitlines()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=200, help="landscapes (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first landscape (%(default)s)")
    parser.add_argument("--store", type=Path, help="file with a line for each landscape; a later call continues it")
    options = parser.parse_args()
    known, table = stored(options.store), dict[tuple[str, str], list[Row]]()
    for seed in range(options.first, options.first + options.searches):
        rows = known.get(seed) or list(rows_of(seed))
        if options.store and seed not in known:
            with options.store.open("a") as file:
                print(json.dumps([seed, rows]), file=file)
        for name, way, row in rows:
            table.setdefault((name, way), []).append(row)
    print(HEAD, *(f"| {name} | {way} | {shown(rows)} |" for (name, way), rows in table.items()), sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
