"""Error rates and cost of a search for the quickest setting, beside other ways, by simulation.

    python benchmarks/reports/search_rates.py --searches 2000 --store rates.jsonl > rates.md

Each search has a landscape of its own with 60 settings; its number is the seed (landscapes.py). Its budget is a third
of the GPU time of a grid of three seeds, starts included. Writes two tables with binomial standard errors. Each search
is a line of the store, and is not repeated by a later call.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np

from benchmarks.reports.landscapes import AXES, Landscape, landscape
from benchmarks.reports.search_peers import Outcome, by_grid, by_halving, by_random, searched
from tracking.analysis.search import Answer, Rules, answer

TOLERANCES = {0.02: 0.03, 0.05: 0.06, 0.15: 0.15}  # by noise
CELLS = [(noise, lumps, misses) for noise in TOLERANCES for lumps, misses in ((False, False), (True, True))]
COLUMNS = (
    "noise", "lumps, misses", "within", "stated tolerance holds (median)", "interval covers", "bias",
    "bias, corrected", "ratio wrong", "faster wrong", "decided", "runs explored + decided",
)  # fmt: skip
HEAD = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|"
HEAD_OF_WAYS = "| noise | lumps, misses | way | within | regret, 95th percentile | GPU time of the grid's |\n" + (
    "|---|---|---|---|---|---|"
)
WAYS = ("search", "random", "halving", "grid")
Case = tuple[int, float, bool, bool]  # a search: its seed, and its cell (noise, lumps, misses)


@dataclass(frozen=True)
class Judged:
    """A search judged by the truth, with the outcome of each way."""

    ways: dict[str, Outcome]
    grid_cost: float
    named: bool  # whether a setting that reaches the target was named
    decided: bool
    stated: bool = False  # whether the named setting is within its stated tolerance of the best
    tolerance: float = math.nan
    covered: bool = False
    bias: float = math.nan
    unbiased: float = math.nan  # the bias of the corrected mean
    ratio_wrong: bool = False
    faster_wrong: bool = False
    num_explored: int = 0
    num_decided: int = 0


def judged(seed: int, noise: float, lumps: bool, misses: bool) -> Judged:
    """One search on one landscape, with the other ways on the same landscape."""
    world = landscape(noise, lumps, misses, seed)
    grid = by_grid(world)
    rules = Rules(AXES, budget=grid.cost / 3, seed=seed)
    trials = searched(world, rules)
    result = answer(rules, trials)
    ways = {
        "search": Outcome.of(world, result.named, trials),
        "random": by_random(world, rules, result.explore_cost),
        "halving": by_halving(world, rules),
        "grid": grid,
    }
    if result.named is None or math.isinf(world.true_time(result.named)):  # its regret is infinite
        return Judged(ways, grid.cost, named=False, decided=False)
    return _beside_truth(world, result, ways)


def _beside_truth(world: Landscape, result: Answer, ways: dict[str, Outcome]) -> Judged:
    assert result.named is not None
    figure = next(figure for figure in result.figures if figure.setting == result.named)
    assert figure.mean is not None
    assert figure.low is not None
    assert figure.high is not None
    true, tolerance = world.true_time(result.named), result.tolerance or 0.0
    assert result.best_by_group is not None
    assert result.ratios is not None
    wrong = faster_wrong = False
    for group, ratio in result.ratios.items():
        measured = world.true_time(result.best_by_group[group].setting) / true
        best = min(time for setting, time in world.true_times.items() if setting[0] == group) / true
        wrong |= not ratio.low <= measured <= ratio.high
        faster_wrong |= ratio.low > 1 and best <= 1
    return Judged(
        ways, ways["grid"].cost, True, result.decided,
        stated=true <= (1 + tolerance) * world.best * (1 + 1e-9),
        tolerance=tolerance,
        covered=figure.low <= true <= figure.high,
        bias=figure.mean / true - 1,
        unbiased=(result.unbiased or math.nan) / true - 1,
        ratio_wrong=wrong,
        faster_wrong=faster_wrong,
        num_explored=result.num_explored,
        num_decided=result.num_decided,
    )  # fmt: skip


def share(flags: Sequence[bool]) -> str:
    """A share with its binomial standard error, in percent."""
    mean = float(np.mean(flags))
    return f"{100 * mean:.1f} ± {100 * math.sqrt(mean * (1 - mean) / len(flags)):.1f} %"


def mean_of(values: Sequence[float]) -> str:
    """A mean with its standard error, in percent."""
    return f"{100 * np.mean(values):+.2f} ± {100 * np.std(values) / math.sqrt(len(values)):.2f} %"


def row(noise: float, lumpy: bool, cell: Sequence[Judged]) -> str:
    named = [search for search in cell if search.named]
    within = [search.ways["search"].regret <= TOLERANCES[noise] for search in cell]
    tolerance = float(np.median([search.tolerance for search in named]))
    columns = [
        f"{noise:.0%}",
        "yes" if lumpy else "no",
        share(within),
        f"{share([search.stated for search in named])} ({100 * tolerance:.1f} %)",
        share([search.covered for search in named]),
        mean_of([search.bias for search in named]),
        mean_of([search.unbiased for search in named]),
        share([search.ratio_wrong for search in named]),
        share([search.faster_wrong for search in named]),
        share([search.decided for search in cell]),
        f"{np.mean([search.num_explored for search in named]):.0f} + "
        f"{np.mean([search.num_decided for search in named]):.0f}",
    ]
    return f"| {' | '.join(columns)} |"


def rows_of_ways(noise: float, lumpy: bool, cell: Sequence[Judged]) -> list[str]:
    rows = []
    for way in WAYS:
        regrets = [search.ways[way].regret for search in cell]
        spent = float(np.mean([search.ways[way].cost / search.grid_cost for search in cell]))
        within = share([regret <= TOLERANCES[noise] for regret in regrets])
        worst = float(np.quantile(regrets, 0.95, method="higher"))
        figures = [within, f"{100 * worst:.1f} %", f"{100 * spent:.0f} %"]
        columns = [f"{noise:.0%}", "yes" if lumpy else "no", way, *figures]
        rows.append(f"| {' | '.join(columns)} |")
    return rows


def searches(cases: Sequence[Case], store: Path | None, processes: int) -> Iterator[tuple[Case, Judged]]:
    """Each case with its search: first those in the store, then the others."""
    known: dict[Case, Judged] = dict(stored(store)) if store and store.exists() else {}
    yield from ((each, known[each]) for each in cases if each in known)
    left = [each for each in cases if each not in known]
    with multiprocessing.Pool(processes) as pool, (store or Path(os.devnull)).open("a") as file:
        for each, search in zip(left, pool.imap(judge_case, left, chunksize=10), strict=True):
            print(json.dumps([each, asdict(search)]), file=file, flush=True)
            yield each, search


def judge_case(case: Case) -> Judged:
    return judged(*case)


def stored(store: Path) -> Iterator[tuple[Case, Judged]]:
    for line in store.read_text().splitlines():
        (seed, noise, lumps, misses), row = json.loads(line)
        ways = {way: Outcome(**outcome) for way, outcome in row.pop("ways").items()}
        yield (seed, noise, lumps, misses), Judged(ways, **row)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=2000, help="searches of each cell (%(default)s)")
    parser.add_argument("--processes", type=int, default=1, help="processes at a time (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first landscape (%(default)s)")
    parser.add_argument("--store", type=Path, help="file with a line for each search; a later call continues it")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.searches)
    cases: list[Case] = [(seed, *cell) for seed in seeds for cell in CELLS]
    cells: dict[tuple[float, bool, bool], list[Judged]] = {cell: [] for cell in CELLS}
    for (_, noise, lumps, misses), search in searches(cases, options.store, options.processes):
        cells[noise, lumps, misses].append(search)
    print(HEAD, *(row(noise, lumps, cell) for (noise, lumps, _), cell in cells.items()), sep="\n")
    others = [line for (noise, lumps, _), cell in cells.items() for line in rows_of_ways(noise, lumps, cell)]
    print("", HEAD_OF_WAYS, *others, "", f"{options.searches:,} searches a cell.", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
