"""Error rates and power of a report's and a gate's verdicts, by simulation.

    python benchmarks/reports/error_rates.py > rates.md

Draws settings with a known truth, 10,000 times a cell (40,000 where the rate is close to the nominal one). Writes a
table: nominal error rate, measured rate with its binomial standard error, rate of the former tests, rate of the
permutation log-rank test (1,000 draws), and power. The exit code is 1 if a cell errs more often than its nominal rate
plus three standard errors; a `(known)` cell may err up to its own limit. Seeds are fixed: a cell's comes from its name.
"""

from __future__ import annotations

import argparse
import math
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np

from benchmarks.reports.cells import Cell, pairs
from benchmarks.reports.choices import families, gates, often

TRIALS = 10_000
OF_RANKS = 1_000  # trials of the log-rank test, which takes a thousand times as long
HEAD = "| what is wrong | case | nominal | measured | before | log-rank | power |\n|---|---|---|---|---|---|---|"


def cells() -> Iterator[Cell]:
    yield from pairs()
    yield from families()
    yield from gates()
    yield from often()


def rate(cell: Cell, draw: str, trials: int) -> float | None:
    """Share of trials for which the cell's `draw` (error, was, rank, power) is True; None if the cell has none."""
    simulate = getattr(cell, draw)
    seed = zlib.crc32(f"{cell.family} {cell.case}".encode())
    return None if simulate is None else float(simulate(np.random.default_rng(seed), trials).mean())


def binomial_error(share: float, trials: int) -> float:
    return math.sqrt(share * (1 - share) / trials)


def above(share: float, nominal: float, trials: int) -> bool:
    return share > nominal + 3 * binomial_error(nominal, trials)


def too_often(cell: Cell, share: float, trials: int) -> bool:
    """Whether a cell errs more often than both its nominal and its known rate."""
    return above(share, max(cell.nominal, cell.known), trials)


def row(cell: Cell, trials: int) -> tuple[str, bool]:
    """Row of the cell in the table, and whether it errs too often."""
    many = max(trials, cell.trials) if trials >= TRIALS else trials
    error = rate(cell, "error", many)
    assert error is not None
    rest = [
        rate(cell, draw, most) for draw, most in (("was", many), ("rank", min(trials, OF_RANKS)), ("power", trials))
    ]
    shown = ["" if share is None else f"{share:.1%}" for share in rest]
    over = too_often(cell, error, many)
    mark = " (!)" if over else " (known)" if above(error, cell.nominal, many) else ""
    measured = f"{error:.2%} ± {binomial_error(error, many):.2%}{mark}"
    return f"| {cell.family} | {cell.case} | {cell.nominal:.0%} | {measured} | {' | '.join(shown)} |", over


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=TRIALS, help="trials of each cell (%(default)s)")
    trials = parser.parse_args().trials
    np.seterr(invalid="ignore")  # infinity minus infinity if no run of a side arrives
    print(HEAD, flush=True)
    over = 0
    for cell in cells():
        line, wrong = row(cell, trials)
        over += wrong
        print(line, flush=True)
    print(f"\n{trials:,} simulations a cell; {over} cells too often in error.")
    return int(over > 0)


if __name__ == "__main__":
    sys.exit(main())
