"""How often the report's t-test tells settings apart that are equal, and settings that differ.

    python benchmarks/error_rates.py --trials 2000

Draws runs of two settings many times and counts p < 0.05, for few and many runs a side, as many or not, scattered alike
or not, normal or lognormal, and for a coin between five and six epochs. Beside it stands Welch's test as SciPy has it.
A row is n and m runs, the spread of the first side over that of the second, and the shares in per cent.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np
from scipy import stats

from tracking.compare import t_test

SIZES = [(2, 2), (2, 5), (2, 20), (3, 3), (3, 10), (5, 5), (5, 20), (20, 20)]
SPREADS = [0.2, 1.0, 5.0]
LEVEL = 0.05
Draw = Callable[[np.random.Generator, int, float], np.ndarray]  # generator, how many, spread


def normal(random: np.random.Generator, size: int, spread: float) -> np.ndarray:
    return random.normal(100.0, 10.0 * spread, size)


def lognormal(random: np.random.Generator, size: int, spread: float) -> np.ndarray:
    """Of mean 100 and this spread."""
    sigma = float(np.sqrt(np.log1p((0.1 * spread) ** 2)))
    return 100.0 * random.lognormal(-(sigma**2) / 2, sigma, size)


def coin(random: np.random.Generator, size: int, spread: float) -> np.ndarray:
    return random.integers(5, 7, size).astype(float)


def cases() -> Iterator[tuple[str, Draw, int, int, float, float]]:
    """Name, draw, n, m, spread of the first side, resolution."""
    for n, m in SIZES:
        for spread in SPREADS:
            yield "normal", normal, n, m, spread, 0.0
        yield "lognormal", lognormal, n, m, 1.0, 0.0
        yield "coin", coin, n, m, 1.0, 1.0


def share(
    draw: Draw, n: int, m: int, spread: float, resolution: float, shift: float, trials: int
) -> tuple[float, float]:
    """Shares told apart by our test and by Welch's; the first side is `shift` standard deviations of the second off."""
    random = np.random.default_rng(1)
    ours = welch = 0
    for _ in range(trials):
        first, second = draw(random, n, spread) + 10.0 * shift, draw(random, m, 1.0)
        p = t_test(list(first), list(second), resolution=resolution)
        ours += p is not None and p < LEVEL
        if np.ptp(first) + np.ptp(second):
            welch += stats.ttest_ind(first, second, equal_var=False).pvalue < LEVEL
        else:
            welch += first[0] != second[0]
    return ours / trials, welch / trials


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000, help="of each row (%(default)s)")
    trials = parser.parse_args().trials
    warnings.simplefilter("ignore", RuntimeWarning)  # SciPy on values that hardly scatter
    print(f"{'':10} {'n':>3} {'m':>3} {'spread':>6}   equal: ours  Welch   four deviations apart: ours  Welch")
    for name, draw, n, m, spread, resolution in cases():
        error = share(draw, n, m, spread, resolution, 0.0, trials)
        power = share(draw, n, m, spread, resolution, 4.0, trials // 4) if name == "normal" else None
        told = "" if power is None else f"{power[0]:27.1%} {power[1]:6.1%}"
        print(f"{name:10} {n:3} {m:3} {spread:6g}   {error[0]:11.1%} {error[1]:6.1%}   {told}", flush=True)


if __name__ == "__main__":
    main()
