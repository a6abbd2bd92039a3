"""Error rate and power of the verdict that one of two settings reaches its target more often, by simulation.

    python benchmarks/reports/share_rates.py --trials 2000

Times are normal, with a mean of 100 and a spread of 10. Equal settings are cut off in one of these ways:

- both at the time that 20, 40 or 60 % miss, or only one of them;
- each run of one setting at a random time from 80 to 130;
- 20, 40 or 60 % of both diverge.

Unequal settings: the second is later by 40. Both are cut off where 20, 40 or 60 % of the first miss; nearly all of the
second then miss too. A row has the largest share of its cases, in per cent.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np
from scipy import stats

from tracking.analysis.statistics import Times, often

SIZES = [(2, 2), (2, 20), (3, 3), (3, 20), (4, 4), (5, 5), (5, 20), (10, 10), (20, 20)]
MISSING = (0.2, 0.4, 0.6)
LEVEL = 0.05


def observed(times: np.ndarray, limits: np.ndarray, diverged: np.ndarray) -> Times:
    reached = (times <= limits) & ~diverged
    return Times(times[reached].tolist(), limits[~reached & ~diverged].tolist(), num_diverged=int(diverged.sum()))


def told_apart(random: np.random.Generator, n: int, m: int, case: str, missing: float, later: float = 0.0) -> bool:
    """Whether a report tells two settings apart."""
    end = 100 + 10 * stats.norm.ppf(1 - missing)
    first_end, second_end = {"both": (end, end), "first": (end, np.inf), "second": (np.inf, end)}.get(
        case, (np.inf, np.inf)
    )
    first_limits = random.uniform(80, 130, n) if case == "at times" else np.full(n, first_end)
    diverging = missing if case == "diverge" else 0.0
    first = observed(random.normal(100, 10, n), first_limits, random.random(n) < diverging)
    second = observed(random.normal(100 + later, 10, m), np.full(m, second_end), random.random(m) < diverging)
    verdict = often(first, second)
    return verdict is not None and verdict.p < LEVEL


def rate(n: int, m: int, case: str, missing: float, trials: int, later: float = 0.0) -> float:
    random = np.random.default_rng(1)
    return sum(told_apart(random, n, m, case, missing, later) for _ in range(trials)) / trials


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000, help="trials of each case (%(default)s)")
    trials = parser.parse_args().trials
    print("  n   m   equal: both cut  one cut  at times  diverge   unequal, where the first misses: 20 %  40 %  60 %")
    for n, m in SIZES:
        both = max(rate(n, m, "both", missing, trials) for missing in MISSING)
        alone = max(rate(n, m, case, missing, trials) for case in ("first", "second") for missing in MISSING)
        diverge = max(rate(n, m, "diverge", missing, trials) for missing in MISSING)
        power = "".join(f"{rate(n, m, 'both', missing, trials // 4, 40.0):6.0%}" for missing in MISSING)
        at_times = rate(n, m, "at times", 0.5, trials)
        print(f"{n:3} {m:3} {both:17.1%} {alone:8.1%} {at_times:9.1%} {diverge:8.1%} {power:>51}", flush=True)


if __name__ == "__main__":
    main()
