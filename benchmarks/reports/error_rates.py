"""How often equal settings are told apart by the t-test of a report.

python benchmarks/reports/error_rates.py
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np

from tracking.statistics import t_test

TRIALS = 2000


def main() -> None:
    random = np.random.default_rng(1)
    for n, m in [(2, 2), (2, 20), (3, 3), (5, 5), (5, 20), (20, 20)]:
        told = sum(
            (t_test(list(random.normal(100, 10, n)), list(random.normal(100, 10, m))) or 0) < 0.05
            for _ in range(TRIALS)
        )
        print(f"{n:3} {m:3} {told / TRIALS:6.1%}", flush=True)


if __name__ == "__main__":
    main()
