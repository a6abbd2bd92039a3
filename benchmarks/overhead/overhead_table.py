"""Table of tracking_overhead.py: each variant beside the bare loop, and whether the target is met.

Differences are taken within a round, between medians or means of epochs. ± is the standard error over rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from tracking.analysis.statistics import mean_and_standard_error

VARIANTS = ("bare PyTorch", "bare Lightning", "ours")


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| batch | variant | n epochs | ms/step, median | quartiles | n rounds | over bare PyTorch, ms ± SE over rounds"
        " of medians | % ± SE | of means, % ± SE | target | met |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for batch in dict.fromkeys(row["batch"] for row in rows):
        base, base_means = by_round(rows, batch, VARIANTS[0]), by_round(rows, batch, VARIANTS[0], statistics.mean)
        for variant in VARIANTS:
            values = [row["ms_per_step"] for row in rows if row["batch"] == batch and row["variant"] == variant]
            low, median, high = statistics.quantiles(values, n=4, method="inclusive")
            cells = [f"{batch}", variant, f"{len(values)}", f"{median:.3f}", f"{low:.3f} to {high:.3f}"]
            if variant == VARIANTS[0]:
                cells += [str(len(base)), *[""] * 5]
            else:
                means = by_round(rows, batch, variant, statistics.mean)
                difference, percent, *met = compare(by_round(rows, batch, variant), base)
                cells += [str(len(base)), difference, percent, compare(means, base_means)[1]]
                cells += met if variant == "ours" else ["", ""]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def by_round(
    rows: Sequence[dict[str, Any]], batch: int, variant: str, centre: Callable[[list[float]], float] = statistics.median
) -> list[float]:
    """Median (or other `centre`) of each round's epochs, ms a step, in the order of the rounds."""
    epoch_times: dict[int, list[float]] = {}
    for row in rows:
        if row["batch"] == batch and row["variant"] == variant:
            epoch_times.setdefault(row["round"], []).append(row["ms_per_step"])
    return [centre(epoch_times[number]) for number in sorted(epoch_times)]


def compare(values: Sequence[float], base: Sequence[float]) -> list[str]:
    """The difference in ms and in percent, with standard errors over rounds, the target, and whether it is met."""
    mean, error = mean_and_standard_error([value - bare for value, bare in zip(values, base, strict=True)])
    step = statistics.median(base)
    percent = 100 * mean / step
    target, met = ("≤ 1 %", percent <= 1) if step >= 5 else ("≤ 0.5 ms", mean <= 0.5)
    spread = "" if error is None else f" ± {error:.3f}"
    percent_spread = "" if error is None else f" ± {100 * error / step:.2f}"
    return [f"{mean:+.3f}{spread}", f"{percent:+.2f}{percent_spread}", target, "yes" if met else "no"]
