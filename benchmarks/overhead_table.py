"""The table of benchmarks/tracking_overhead.py: each variant beside the bare loop, and whether the target is met."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from tracking.compare import mean_and_standard_error

VARIANTS = ("bare PyTorch", "bare Lightning", "ours")


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| batch | variant | n epochs | ms/step, median | quartiles | over bare PyTorch, ms ± SE | % | target | met |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for batch in dict.fromkeys(row["batch"] for row in rows):
        base = by_round(rows, batch, VARIANTS[0])
        for variant in VARIANTS:
            values = [row["ms_per_step"] for row in rows if row["batch"] == batch and row["variant"] == variant]
            low, median, high = statistics.quantiles(values, n=4, method="inclusive")
            cells = [f"{batch}", variant, f"{len(values)}", f"{median:.3f}", f"{low:.3f} to {high:.3f}"]
            cells += compare(by_round(rows, batch, variant), base) if variant != VARIANTS[0] else [""] * 4
            lines.append(f"| {' | '.join(cells if variant == 'ours' else [*cells[:7], '', ''])} |")
    return "\n".join(lines)


def by_round(rows: Sequence[dict[str, Any]], batch: int, variant: str) -> list[float]:
    found: dict[int, list[float]] = {}
    for row in rows:
        if row["batch"] == batch and row["variant"] == variant:
            found.setdefault(row["round"], []).append(row["ms_per_step"])
    return [statistics.median(values) for values in found.values()]


def compare(values: Sequence[float], base: Sequence[float]) -> list[str]:
    """The difference in ms with its standard error, in percent, the target for it, and whether it is met."""
    mean, error = mean_and_standard_error([value - bare for value, bare in zip(values, base, strict=True)])
    step = statistics.median(base)
    percent = 100 * mean / step
    target, met = ("≤ 1 %", percent <= 1) if step >= 5 else ("≤ 0.5 ms", mean <= 0.5)
    spread = "" if error is None else f" ± {error:.3f}"
    return [f"{mean:+.3f}{spread}", f"{percent:+.2f}", target, "yes" if met else "no"]
