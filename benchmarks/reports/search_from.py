"""How many runs `search.from` saves a search on other GPUs, from the best settings of the search before.

    python -m benchmarks.reports.search_from --searches 100

Each landscape (landscapes.py) is searched, and then the same one on quicker GPUs, which need larger batches and scale
worse: once from the start, and once from the best settings of the first search. Noise is 5 %, without lumps. Prints a
row each: the runs until one within 6 % of the best was made, those that explored, all of them, and the regret.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, stdev

from benchmarks.reports.landscapes import AXES, Landscape, landscape
from benchmarks.reports.search_peers import by_grid, searched
from tracking.analysis.search import Rules, answer

NOISE, NEAR = 0.05, 0.06
HEAD = "| begins with | first within 6 % after | explored | all runs | regret |\n|---|---|---|---|---|"
Row = tuple[float, float, float, float]


def on_other_gpus(world: Landscape) -> Landscape:
    """The landscape where an epoch takes half the time; its noise is drawn anew."""
    return replace(
        world, seed=world.seed + 1_000_000, epoch_sec=world.epoch_sec / 2, half=2 * world.half,
        scaling=max(0.6, world.scaling - 0.1),
    )  # fmt: skip


def search(world: Landscape, rules: Rules) -> tuple[Row, Rules]:
    """A search as a row, and the rules of one that begins with its best settings."""
    trials = searched(world, rules)
    own = answer(rules, trials)
    assert own.named is not None
    near = [world.true_time(trial.setting) <= (1 + NEAR) * world.best for trial in trials]
    first = near.index(True) + 1 if any(near) else len(trials)
    starts = (own.named, *(figure.setting for figure in (own.best_by_group or {}).values()))
    row = first, own.num_explored, len(trials), world.true_time(own.named) / world.best - 1
    return row, replace(rules, starts=starts)


def shown(rows: Sequence[Row]) -> str:
    first, explored, runs, regret = (
        (fmean(column), stdev(column) / len(column) ** 0.5) for column in zip(*rows, strict=True)
    )
    counts = [f"{mean:.1f} ± {error:.1f}" for mean, error in (first, explored, runs)]
    return " | ".join([*counts, f"{100 * regret[0]:.2f} ± {100 * regret[1]:.2f} %"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=100, help="landscapes (%(default)s)")
    anew: list[Row] = []
    after: list[Row] = []
    for seed in range(parser.parse_args().searches):
        world = landscape(NOISE, lumps=False, misses=False, seed=seed)
        other = on_other_gpus(world)
        _, begun = search(world, Rules(AXES, budget=by_grid(world).cost / 3, seed=seed))
        budget = by_grid(other).cost / 3
        anew.append(search(other, Rules(AXES, budget=budget, seed=seed))[0])
        after.append(search(other, replace(begun, budget=budget))[0])
    print(HEAD)
    print(f"| nothing | {shown(anew)} |\n| the best before | {shown(after)} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
