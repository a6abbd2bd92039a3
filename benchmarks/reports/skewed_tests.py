"""Error rates and power of other tests of two means for skewed times with unequal spread.

    python benchmarks/reports/skewed_tests.py > skewed_tests.csv

The product's test is Banerjee's. The others:

- the same with Johnson's correction for skewness (1978, Journal of the American Statistical Association 73, 536-544);
- the same with Hall's cubic transformation (1992, Journal of the Royal Statistical Society B 54, 221-228);
- the product's and Johnson's at once;
- the product's on logarithms;
- permutations of the studentised difference (Janssen 1997, Statistics & Probability Letters 36, 9-21).

A share is an error rate if the means are equal, otherwise power.
"""

from __future__ import annotations

import csv
import sys
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np
from scipy import stats

from benchmarks.reports.cells import HALF, LEVEL, MANY, SIZES, later, lognormal, normal
from benchmarks.reports.vectorised import Rows, Side

TRIALS = 10_000  # for power
PERMUTED, PERMUTATIONS = 4_000, 199
Test = Callable[[Rows, Rows], Rows]


def banerjee(first: Rows, second: Rows, distance: Rows | None = None) -> Rows:
    """Verdicts of the product's test, at a corrected `distance` of the means if given."""
    distance = first.mean(axis=1) - second.mean(axis=1) if distance is None else distance
    sides = [(side.var(axis=1, ddof=1), side.shape[1]) for side in (first, second)]
    return np.square(distance) > sum(v / n * stats.t.isf(LEVEL / 2, n - 1) ** 2 for v, n in sides)


def moments(first: Rows, second: Rows) -> tuple[Rows, Rows, Rows]:
    """Distance of the means, its variance, and its third central moment."""
    variance = first.var(axis=1, ddof=1) / first.shape[1] + second.var(axis=1, ddof=1) / second.shape[1]
    third = []
    for side in (first, second):
        n = side.shape[1]
        cubes = ((side - side.mean(axis=1, keepdims=True)) ** 3).sum(axis=1)
        third.append(cubes * n / ((n - 1) * (n - 2)) / n**2)
    return first.mean(axis=1) - second.mean(axis=1), variance, third[0] - third[1]


def johnson(first: Rows, second: Rows) -> Rows:
    if min(first.shape[1], second.shape[1]) < 3:  # Two values have no skewness.
        return banerjee(first, second)
    distance, variance, third = moments(first, second)
    return banerjee(first, second, distance + third / (6 * variance) + third / (3 * variance**2) * distance**2)


def hall(first: Rows, second: Rows) -> Rows:
    if min(first.shape[1], second.shape[1]) < 3:
        return banerjee(first, second)
    distance, variance, third = moments(first, second)
    skewness, score = third / variance**1.5, distance / np.sqrt(variance)
    straight = score + skewness / 3 * score**2 + skewness**2 / 27 * score**3 + skewness / 6
    return banerjee(first, second, straight * np.sqrt(variance))


def permuted(first: Rows, second: Rows) -> Rows:
    random, n = np.random.default_rng(1), first.shape[1]
    first, second = first[:PERMUTED], second[:PERMUTED]
    together, observed = np.concatenate([first, second], axis=1), studentised(first, second)
    beyond = np.ones(len(first))
    for _ in range(PERMUTATIONS):
        drawn = random.permuted(together, axis=1)
        beyond += studentised(drawn[:, :n], drawn[:, n:]) >= observed * (1 - 1e-12)
    return beyond / (PERMUTATIONS + 1) <= LEVEL


def studentised(first: Rows, second: Rows) -> Rows:
    variance = first.var(axis=1, ddof=1) / first.shape[1] + second.var(axis=1, ddof=1) / second.shape[1]
    return np.abs(first.mean(axis=1) - second.mean(axis=1)) / np.sqrt(variance)


TESTS: Mapping[str, Test] = {
    "the product's": banerjee,
    "Johnson's": johnson,
    "Hall's": hall,
    "both at once": lambda first, second: banerjee(first, second) & johnson(first, second),
    "of logarithms": lambda first, second: banerjee(np.log(first), np.log(second)),
    "permutations": permuted,
}


def cases(random: np.random.Generator, trials: int, n: int, m: int) -> dict[str, tuple[Side, Side]]:
    """Two settings by case. The first five cases have equal means."""
    half, tenth = lognormal(random, trials, n, HALF), lognormal(random, trials, m, 1.0)
    narrow, wide = lognormal(random, trials, n, 1.0), lognormal(random, trials, m, HALF)
    even, other = normal(random, trials, n, 1.0), normal(random, trials, m, 1.0)
    return {
        "lognormal, half the mean beside a tenth": (half, tenth),
        "lognormal, half the mean on both": (half, wide),
        "lognormal, a tenth beside half the mean": (narrow, wide),
        "normal, spread 5 : 1": (normal(random, trials, n, HALF), other),
        "normal": (even, other),
        "power: normal, two standard deviations later": (even, later(other, 20.0)),
        "power: lognormal, a tenth, 1.2 times": (narrow, tenth.scaled(1.2)),
        "power: lognormal, half the mean beside a tenth, 2 times": (half.scaled(2.0), tenth),
        "power: lognormal, half the mean beside a tenth of 2 times": (half, tenth.scaled(2.0)),
    }  # fmt: skip


def main() -> None:
    np.seterr(invalid="ignore")  # A normal time below 0 has no logarithm; such a trial has no verdict.
    write = csv.writer(sys.stdout, lineterminator="\n").writerow
    write(["case", "runs", "trials", *(f"{name} (%)" for name in TESTS)])
    for n, m in SIZES:
        random = np.random.default_rng(zlib.crc32(f"{n} and {m}".encode()))
        for case, sides in cases(random, MANY, n, m).items():
            trials = TRIALS if case.startswith("power") else MANY
            first, second = (side.times[:trials] for side in sides)
            shares = [100 * float(test(first, second).mean()) for test in TESTS.values()]
            write([case, f"{n} and {m}", trials, *(f"{share:.2f}" for share in shares)])
            sys.stdout.flush()


if __name__ == "__main__":
    main()
