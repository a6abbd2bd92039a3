"""Error rates and cost of a search for the quickest setting, beside other ways, by simulation.

    python benchmarks/reports/search_rates.py --searches 2000 --store rates.jsonl > rates.md
    python benchmarks/reports/search_rates.py --searches 300 --small --store small.jsonl > small.md

Each search has a landscape of its own with 60 settings; its number is the seed (landscapes.py). Its budget is a third
of the GPU time of a grid of three seeds, starts included. Writes two tables with binomial standard errors. `--small`
has one table, of smaller budgets: too small for four finalists, for two, or for the first look. Each search is a line
of the store, and is not repeated by a later call.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np

from benchmarks.reports.landscapes import Landscape, landscape
from benchmarks.reports.search_peers import Outcome, by_grid, by_halving, by_random, searched
from tracking.analysis.search import Answer, Rules, answer


class Cell(NamedTuple):
    """Landscapes alike in all but their seed. `share`: the budget as a share of the grid's GPU time. `groups`: how many
    numbers of GPUs are searched, which each keep a finalist."""

    noise: float
    lumps: bool  # and misses
    share: float = 1 / 3
    groups: int = 3


TOLERANCES = {0.02: 0.03, 0.05: 0.06, 0.15: 0.15}  # by noise
CELLS = [Cell(noise, lumps) for noise in TOLERANCES for lumps in (False, True)]
SMALL_CELLS = [
    cell._replace(share=share, groups=groups)
    for groups, shares in ((1, (1 / 3, 1 / 4, 1 / 6, 1 / 9)), (3, (1 / 6, 1 / 9, 1 / 13)))
    for share in shares
    for cell in CELLS
]
WAYS = ("search", "random", "halving", "grid")
HEAD_OF_WAYS = "| noise | lumps, misses | way | within | regret, 95th percentile | GPU time of the grid's |\n" + (
    "|---|---|---|---|---|---|"
)


@dataclass(frozen=True)
class Judged:
    """A search judged by the truth, with the outcome of each way."""

    ways: dict[str, Outcome]
    grid_cost: float
    answered: bool  # whether a setting was named
    named: bool  # whether it reaches the target
    spent: float  # of the budget
    num_explored: int
    num_decided: int
    num_finalists: int
    decided: bool
    stated: bool = False  # whether the named setting is within its stated tolerance of the best finalist
    stated_of_all: bool = False  # the same, of the best setting
    tolerance: float = math.nan
    covered: bool = False
    bias: float = math.nan
    unbiased: float = math.nan  # the bias of the corrected mean
    ratio_wrong: bool = False
    faster_wrong: bool = False


Case = tuple[int, Cell]  # a search: its seed and its cell


def judged(seed: int, cell: Cell) -> Judged:
    """One search on one landscape; in one of CELLS, with the other ways on the same landscape."""
    world = replace(landscape(cell.noise, cell.lumps, cell.lumps, seed), groups=cell.groups)
    grid = by_grid(world)
    rules = Rules(world.axes, budget=cell.share * grid.cost, seed=seed)
    trials = searched(world, rules)
    result = answer(rules, trials)
    ways = {"search": Outcome.of(world, result.named, trials), "grid": grid}
    if cell in CELLS:
        ways |= {"random": by_random(world, rules, result.explore_cost), "halving": by_halving(world, rules)}
    # A setting that does not reach the target has an infinite regret.
    named = result.named is not None and math.isfinite(world.true_time(result.named))
    search = Judged(
        ways, grid.cost, result.named is not None, named,
        spent=ways["search"].cost / rules.budget,
        num_explored=result.num_explored,
        num_decided=result.num_decided,
        num_finalists=len(result.figures),
        decided=named and result.decided,
    )  # fmt: skip
    return _beside_truth(search, world, result) if named else search


def _beside_truth(search: Judged, world: Landscape, result: Answer) -> Judged:
    assert result.named is not None
    figure = next(figure for figure in result.figures if figure.setting == result.named)
    assert figure.mean is not None
    assert figure.low is not None
    assert figure.high is not None
    true, tolerance = world.true_time(result.named), result.tolerance
    finalists = min(world.true_time(figure.setting) for figure in result.figures)
    assert result.best_by_group is not None
    assert result.ratios is not None
    wrong = faster_wrong = False
    for group, ratio in result.ratios.items():
        measured = world.true_time(result.best_by_group[group].setting) / true
        best = min(time for setting, time in world.true_times.items() if setting[0] == group) / true
        wrong |= not ratio.low <= measured <= ratio.high
        faster_wrong |= ratio.low > 1 and best <= 1
    return replace(
        search,
        stated=tolerance is not None and true <= (1 + tolerance) * finalists * (1 + 1e-9),
        stated_of_all=tolerance is not None and true <= (1 + tolerance) * world.best * (1 + 1e-9),
        tolerance=math.nan if tolerance is None else tolerance,
        covered=figure.low <= true <= figure.high,
        bias=figure.mean / true - 1,
        unbiased=(result.unbiased or math.nan) / true - 1,
        ratio_wrong=wrong,
        faster_wrong=faster_wrong,
    )


def share(flags: Sequence[bool]) -> str:
    """A share with its binomial standard error, in percent; empty without any."""
    if not flags:
        return ""
    mean = float(np.mean(flags))
    return f"{100 * mean:.1f} ± {100 * math.sqrt(mean * (1 - mean) / len(flags)):.1f} %"


def mean_of(values: Sequence[float]) -> str:
    """A mean with its standard error, in percent; empty without any."""
    if not values:
        return ""
    return f"{100 * np.mean(values):+.2f} ± {100 * np.std(values) / math.sqrt(len(values)):.2f} %"


def runs(searches: Sequence[Judged]) -> str:
    explored, decided = ([getattr(search, key) for search in searches] for key in ("num_explored", "num_decided"))
    return f"{np.mean(explored):.0f} + {np.mean(decided):.0f}"


def columns(cell: Cell, searches: Sequence[Judged]) -> dict[str, str]:
    """All figures of a cell by their headings. Claims are judged where a setting that reaches the target is named."""
    answered = [search for search in searches if search.answered]
    named = [search for search in searches if search.named]
    stating = [search for search in named if not math.isnan(search.tolerance)]
    tolerance = f" ({100 * float(np.median([search.tolerance for search in stating])):.1f} %)" if stating else ""
    return {
        "noise": f"{cell.noise:.0%}",
        "lumps, misses": "yes" if cell.lumps else "no",
        "numbers of GPUs": str(cell.groups),
        "budget": f"{cell.share:.0%}",
        "finalists": f"{np.mean([search.num_finalists for search in searches]):.1f}",
        "answered": share([search.answered for search in searches]),
        "within": share([search.ways["search"].regret <= TOLERANCES[cell.noise] for search in answered]),
        "stated tolerance holds (median)": f"{share([search.stated for search in stating])}{tolerance}",
        "of all settings": share([search.stated_of_all for search in stating]),
        "interval covers": share([search.covered for search in named]),
        "bias": mean_of([search.bias for search in named]),
        "bias, corrected": mean_of([search.unbiased for search in named]),
        "ratio wrong": share([search.ratio_wrong for search in named]),
        "faster wrong": share([search.faster_wrong for search in named]),
        "decided": share([search.decided for search in searches]),
        "runs explored + decided": runs(searches),
        "most spent": f"{100 * max(search.spent for search in searches):.0f} %",
    }


ONLY_SMALL = ("numbers of GPUs", "budget", "finalists", "answered", "most spent")
NOT_SMALL = ("bias",)


def table(cells: Mapping[Cell, Sequence[Judged]], without: Sequence[str]) -> list[str]:
    rows = [columns(cell, searches) for cell, searches in cells.items()]
    headings = [heading for heading in rows[0] if heading not in without]
    lines = [[row[heading] for heading in headings] for row in rows]
    head, *rest = [f"| {' | '.join(line)} |" for line in [headings, *lines]]
    return [head, f"{'|---' * len(headings)}|", *rest]


def rows_of_ways(cell: Cell, searches: Sequence[Judged]) -> list[str]:
    rows = []
    for way in WAYS:
        regrets = [search.ways[way].regret for search in searches]
        spent = float(np.mean([search.ways[way].cost / search.grid_cost for search in searches]))
        within = share([regret <= TOLERANCES[cell.noise] for regret in regrets])
        worst = float(np.quantile(regrets, 0.95, method="higher"))
        figures = [within, f"{100 * worst:.1f} %", f"{100 * spent:.0f} %"]
        names = [f"{cell.noise:.0%}", "yes" if cell.lumps else "no", way]
        rows.append(f"| {' | '.join([*names, *figures])} |")
    return rows


def all_searches(cases: Sequence[Case], store: Path | None, processes: int) -> Iterator[tuple[Case, Judged]]:
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
        (seed, cell), row = json.loads(line)
        ways = {way: Outcome(**outcome) for way, outcome in row.pop("ways").items()}
        yield (seed, Cell(*cell)), Judged(ways, **row)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=2000, help="searches of each cell (%(default)s)")
    parser.add_argument("--processes", type=int, default=1, help="processes at a time (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first landscape (%(default)s)")
    parser.add_argument("--store", type=Path, help="file with a line for each search; a later call continues it")
    parser.add_argument("--small", action="store_true", help="smaller budgets")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.searches)
    cells: dict[Cell, list[Judged]] = {cell: [] for cell in (SMALL_CELLS if options.small else CELLS)}
    cases = [(seed, cell) for seed in seeds for cell in cells]
    for (_, cell), search in all_searches(cases, options.store, options.processes):
        cells[cell].append(search)
    print(*table(cells, NOT_SMALL if options.small else ONLY_SMALL), sep="\n")
    if not options.small:
        others = [line for cell, searches in cells.items() for line in rows_of_ways(cell, searches)]
        print("", HEAD_OF_WAYS, *others, sep="\n")
    print(f"\n{options.searches:,} searches a cell.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
