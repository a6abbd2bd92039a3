"""How often a report and a gate tell settings apart that are equal, and settings that differ.

    python benchmarks/reports/error_rates.py --trials 2000
    python benchmarks/reports/error_rates.py --trials 5000 --cut

Draws runs of two settings many times and counts p < 0.05, for few and many runs a side, as many or not, scattered alike
or not, normal or lognormal, and for a coin between five and six epochs. Beside it stands Welch's test as SciPy has it.
A row is n and m runs, the spread of the first side over that of the second, and the shares in per cent.

With `--cut`, of runs that did not all get to their target. Times are normal, with a mean of 100 on both sides and a
spread of 10 on the second. They are cut off where this share of the first side's runs misses: on the first side alone,
or on both at the same time; or that share of both sides' runs diverges. Beside the report's test stand three others:
means of min(T, tau), tau being the earliest time at which a run was given up; the runs alone that reached the target,
with the same t-test; and SciPy's log-rank test, on a tenth of the trials. `gate` is the larger share of the two
one-sided tests at 5 %. The power is that for a second side 40 later, as it is cut at the same time, and uncut.

With `--best`, of the best and the worst of several software stacks, as a study of stacks compares them: how often they
are told apart where all are equal, and where one is a fifth slower at a spread of 2 %. Beside it stands the same pair
at Bonferroni's level for all pairs. Spreads are equal, or one stack's is five times the others'; or half of the stacks
have five times as many runs.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np
from scipy import stats

from tracking.statistics import Choice, Times, p_sooner, t_test

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


CUT_SIZES = [(2, 2), (2, 20), (20, 2), (3, 3), (3, 20), (20, 3), (5, 5), (10, 10), (20, 20)]
CUTS = [("first", 0.2), ("first", 0.6), ("both", 0.2), ("both", 0.6), ("diverge", 0.3)]
TESTS = ("ours", "gate", "restricted", "reached", "log-rank")


def observed(random: np.random.Generator, times: np.ndarray, end: float, diverging: float) -> Times:
    good = random.random(len(times)) >= diverging
    in_time = good & (times <= end)
    return Times(times[in_time].tolist(), [float(end)] * int((good & ~in_time).sum()), num_diverged=int((~good).sum()))


def told(first: Times, second: Times, with_log_rank: bool) -> dict[str, bool]:
    """By each of TESTS, whether two settings are told apart."""
    p = [p_sooner(first, second) or 0.0, p_sooner(second, first) or 0.0]
    latest = max(first.latest, second.latest)
    tau = min([*first.censored, *second.censored], default=latest)
    first_times, second_times = ([min(value, tau) for value in side.at_least(latest)] for side in (first, second))
    verdicts = {
        "ours": min(p) < LEVEL / 2,
        "first sooner": p[0] < LEVEL,
        "second sooner": p[1] < LEVEL,
        "restricted": (t_test(first_times, second_times) or 0.0) < LEVEL,
        "reached": min(len(first.reached), len(second.reached)) > 1
        and (t_test(first.reached, second.reached) or 0.0) < LEVEL,
    }
    if with_log_rank and first.reached and second.reached:
        data = [
            stats.CensoredData(side.reached, right=side.at_least(latest)[len(side.reached) :])
            for side in (first, second)
        ]
        verdicts["log-rank"] = bool(stats.logrank(*data).pvalue < LEVEL)
    return verdicts


def cut_shares(n: int, m: int, spread: float, cut: tuple[str, float], later: float, trials: int) -> dict[str, float]:
    """By each of TESTS, the share of trials that tells the sides apart; the second one's mean is `later`."""
    random = np.random.default_rng(1)
    where, missing = cut
    end = np.inf if where == "diverge" else 100 + 10 * spread * stats.norm.ppf(1 - missing)
    counts = dict.fromkeys((*TESTS, "first sooner", "second sooner"), 0)
    diverging = missing if where == "diverge" else 0.0
    for trial in range(trials):
        first = observed(random, normal(random, n, spread), end, diverging)
        second = observed(random, normal(random, m, 1.0) + later, end if where == "both" else np.inf, diverging)
        for name, yes in told(first, second, trial % 10 == 0 and not later).items():
            counts[name] += yes
    shares = {name: count / trials for name, count in counts.items()}
    return shares | {"gate": max(shares["first sooner"], shares["second sooner"]), "log-rank": 10 * shares["log-rank"]}


def main_cut(trials: int) -> None:
    tests = " ".join(f"{name:>10}" for name in TESTS)
    print(f"{'cut':8} {'share':>5} {'n':>3} {'m':>3} {'spread':>6}  {tests}  power uncut")
    for n, m in CUT_SIZES:
        uncut = {spread: cut_shares(n, m, spread, ("diverge", 0.0), 40.0, trials // 10)["ours"] for spread in SPREADS}
        for cut in CUTS:
            for spread in SPREADS:
                shares = cut_shares(n, m, spread, cut, 0.0, trials)
                words = " ".join(f"{shares[name]:10.1%}" for name in TESTS)
                power = cut_shares(n, m, spread, ("both" if cut[0] == "first" else cut[0], cut[1]), 40.0, trials // 10)
                head = f"{cut[0]:8} {cut[1]:5.0%} {n:3} {m:3} {spread:6g}"
                print(f"{head}  {words}  {power['ours']:5.0%} {uncut[spread]:5.0%}", flush=True)


def choices(random: np.random.Generator, num_stacks: int, n: int, case: str, slower: float) -> list[Times]:
    sizes = [5 * n if case == "unbalanced" and place % 2 else n for place in range(num_stacks)]
    spreads = [5.0 if case == "one wide" and place == 1 else 1.0 for place in range(num_stacks)]
    means = [100.0 + slower * (place == 0) for place in range(num_stacks)]
    if case == "coin":
        return [Times((random.integers(5, 7, n) + slower).tolist()) for _ in range(num_stacks)]
    return [
        Times(random.normal(mean, 2 * spread, size).tolist())
        for mean, spread, size in zip(means, spreads, sizes, strict=True)
    ]


def best_shares(num_stacks: int, n: int, case: str, slower: float, trials: int) -> tuple[float, float]:
    """Shares of trials in which the best and the worst are told apart, by the studentized range and by Bonferroni."""
    random = np.random.default_rng(1)
    counts = [0, 0]
    by_range = Choice(num_stacks, num_stacks * (num_stacks - 1) // 2, shared=case == "coin")
    for _ in range(trials):
        sides = sorted(choices(random, num_stacks, n, case, slower), key=lambda times: float(np.mean(times.reached)))
        low, high = sides[0].reached, sides[-1].reached
        p = t_test(low, high, resolution=1.0 if case == "coin" else 0.0)
        assert p is not None
        freedom = min(len(low), len(high)) - 1
        counts[0] += p < 2 * by_range.level(freedom, LEVEL)
        counts[1] += p < LEVEL / by_range.num_tests
    return counts[0] / trials, counts[1] / trials


def main_best(trials: int) -> None:
    print(f"{'':12} {'stacks':>6} {'n':>3}   equal: range  Bonferroni   a fifth slower: range  Bonferroni")
    for case in ("equal", "one wide", "unbalanced", "coin"):
        for num_stacks in (2, 4, 8, 19):
            for n in (2, 3, 5, 10):
                error = best_shares(num_stacks, n, case, 0.0, trials)
                power = best_shares(num_stacks, n, case, 20.0, trials // 10) if case != "coin" else None
                told = "" if power is None else f"{power[0]:25.0%} {power[1]:11.0%}"
                print(f"{case:12} {num_stacks:6} {n:3}   {error[0]:12.1%} {error[1]:11.1%}   {told}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000, help="of each row (%(default)s)")
    parser.add_argument("--cut", action="store_true", help="of runs that did not all get to their target")
    parser.add_argument("--best", action="store_true", help="of the best and the worst of several stacks")
    arguments = parser.parse_args()
    trials = arguments.trials
    warnings.simplefilter("ignore", RuntimeWarning)  # SciPy on values that hardly scatter
    if arguments.cut:
        main_cut(trials)
        return
    if arguments.best:
        main_best(trials)
        return
    print(f"{'':10} {'n':>3} {'m':>3} {'spread':>6}   equal: ours  Welch   four deviations apart: ours  Welch")
    for name, draw, n, m, spread, resolution in cases():
        error = share(draw, n, m, spread, resolution, 0.0, trials)
        power = share(draw, n, m, spread, resolution, 4.0, trials // 4) if name == "normal" else None
        told = "" if power is None else f"{power[0]:27.1%} {power[1]:6.1%}"
        print(f"{name:10} {n:3} {m:3} {spread:6g}   {error[0]:11.1%} {error[1]:6.1%}   {told}", flush=True)


if __name__ == "__main__":
    main()
