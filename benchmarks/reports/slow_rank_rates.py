"""Simulated rates at which a report names a slow rank: among equal ranks that scatter or drift, and with a slow one.

    python benchmarks/reports/slow_rank_rates.py > rates.md

The ranks of a run wait for each other in each of ten steps of a window. A step's work scatters by a tenth. Ranks are
equal over many runs, and within a run they differ in one of these ways (times are shares of the run):

- delays: 2 % of the steps take ten times as long;
- drift: the logarithm of a rank's work follows a first-order autoregression with a spread of 0.2;
- visits: somebody doubles one rank's work for a while, then another one's.

In the last rows the last rank has more work on top. Each row is of 2, 4 or 8 ranks in 12 or 40 windows, 2,000 runs.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np

from tracking.measure.bottleneck import slow_rank

RUNS, STEPS, SCATTER, SPREAD, OVERHEAD = 2000, 10, 0.1, 0.2, 0.05
NOMINAL = 0.05
HEAD = "| runs | ranks | windows | named | by the first condition and the binomial test alone |\n|---|---|---|---|---|"
Windows = list[dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """`share`: length of a drift or visit, as a share of the run. `work`: the last rank's work over the others'."""

    kind: str
    share: float = 0.0
    work: float = 1.0

    @property
    def words(self) -> str:
        lasting = f" over {self.share:.0%} of the run" if self.share else ""
        return f"{self.kind}{lasting}" + (f", {self.work:g} times the work" if self.work != 1.0 else "")


EQUAL = [Case("scatter"), Case("delays"), *(Case(kind, share) for kind in ("drift", "visits") for share in (0.1, 0.2))]
BEYOND = [Case("drift", 0.5), Case("visits", 0.5)]  # half as long as the run: no test of one run can tell them
SLOW = [Case(case.kind, case.share, work) for work in (1.3, 2.0) for case in (*EQUAL[:3], EQUAL[4])]


def work_of(random: np.random.Generator, case: Case, ranks: int, windows: int) -> np.ndarray:
    """The work of each rank in each window, relative to the same rank's in other runs."""
    length = max(1.0, case.share * windows)
    rows = np.zeros((windows, ranks))
    if case.kind == "drift":
        keep = math.exp(-1 / length)
        rows[0] = random.normal(0, SPREAD, ranks)
        for place in range(1, windows):
            rows[place] = keep * rows[place - 1] + random.normal(0, SPREAD * math.sqrt(1 - keep**2), ranks)
    elif case.kind == "visits":
        host = random.integers(ranks)
        for place in range(windows):
            rows[place, host] = math.log(2)
            if random.random() < 1 / length:
                host = (host + random.integers(1, ranks)) % ranks
    work: np.ndarray = np.exp(rows)
    work[:, -1] *= case.work
    return work


def windows_of(random: np.random.Generator, case: Case, ranks: int, windows: int) -> Windows:
    """A run's windows as its journal has them."""
    steps = random.lognormal(0.0, SCATTER, (windows, STEPS, ranks)) * work_of(random, case, ranks, windows)[:, None]
    if case.kind == "delays":
        steps *= np.where(random.random(steps.shape) < 0.02, 10.0, 1.0)
    slowest = steps.max(axis=2, keepdims=True)
    waits, whole = (slowest - steps + OVERHEAD).sum(axis=1), (slowest + OVERHEAD).sum(axis=(1, 2))
    return [
        {"rank_ms": [sec] * ranks, "rank_exchange_ms": row, "step_ms": [1.0] * STEPS}
        for row, sec in zip(waits.tolist(), whole.tolist(), strict=True)
    ]


def rates(case: Case, ranks: int, windows: int, runs: int) -> tuple[float, float]:
    """Shares of runs in which a rank is named (if one is slow: the right one), now and without the test for drift."""
    random = np.random.default_rng([ranks, windows, len(case.words)])
    now = before = 0
    for _ in range(runs):
        all_ranks = slow_rank.ranks(windows_of(random, case, ranks, windows))
        least, waited = slow_rank.longest_wait(all_ranks)
        right = case.work == 1.0 or least.rank == ranks - 1
        long_enough = waited >= slow_rank.MIN_WAIT_SHARE * least.total
        before += right and long_enough and least.lead.is_beyond_counts
        now += right and slow_rank.waited_for(all_ranks) is not None
    return now / runs, before / runs


def rows(runs: int) -> Iterator[tuple[str, bool]]:
    """Each row, and whether equal ranks are named too often in it."""
    for case in (*EQUAL, *BEYOND, *SLOW):
        for ranks in (2, 4, 8):
            for windows in (12, 40):
                now, before = rates(case, ranks, windows, runs)
                over = case in EQUAL and now > NOMINAL + 3 * math.sqrt(NOMINAL * (1 - NOMINAL) / runs)
                yield f"| {case.words} | {ranks} | {windows} | {now:.1%}{' (!)' * over} | {before:.1%} |", over


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each row (%(default)s)")
    runs = parser.parse_args().runs
    print(HEAD, flush=True)
    num_over = 0
    for line, over in rows(runs):
        num_over += over
        print(line, flush=True)
    print(f"\n{runs:,} runs a row; in {num_over} rows equal ranks are named too often.")
    return int(num_over > 0)


if __name__ == "__main__":
    sys.exit(main())
