"""Rows and tables of fusions.py."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field

SIDES = ("unfused", "fused")
EACH = ("ms", "lower_quartile_ms", "upper_quartile_ms", "gigabytes", "gigabytes_per_sec", "tflop_per_sec")
COLUMNS = (
    "layer", "count", "pattern", "normalises", "type", *(f"{side}_{each}" for side in SIDES for each in EACH), "error",
    "note",
)  # fmt: skip
TABLE = ("layer", "x", "pattern", "type", "unfused ms", "fused ms", "ms a step", "GB", "GB/s", "TFLOP/s", "error")


@dataclass(frozen=True)
class Row:
    """A layer's pattern: times in ms and moved bytes of its unfused and its fused side. No times: not measured."""

    layer: str
    count: int  # in the network
    pattern: str
    moved: tuple[int, ...] = (0, 0)
    flop: int = 0
    normalises: bool = False
    unfused: list[float] = field(default_factory=list)
    fused: list[float] = field(default_factory=list)
    type: str = ""
    error: float | None = None
    note: str = ""

    def gain(self) -> float | None:
        """Milliseconds that a step saves."""
        if not (self.unfused and self.fused):
            return None
        return self.count * (statistics.median(self.unfused) - statistics.median(self.fused))

    def side(self, side: str) -> list[float]:
        """Values in the order of EACH; an empty list where the side was not measured."""
        times: list[float] = getattr(self, side)
        if not times:
            return []
        low, middle, high = statistics.quantiles(times, n=4)
        gigabytes = self.moved[SIDES.index(side)] / 1e9
        return [middle, low, high, gigabytes, gigabytes / middle * 1e3, self.flop / middle / 1e9]

    def cells(self) -> list[object]:
        """Values in the order of COLUMNS."""
        values: list[object] = [self.layer, self.count, self.pattern, self.normalises, self.type]
        for side in SIDES:
            values += [f"{value:.4g}" for value in self.side(side)] or [""] * len(EACH)
        return [*values, "" if self.error is None else f"{self.error:.2g}", self.note]

    def line(self) -> str:
        """The row in Markdown."""
        both = [self.side(side) for side in SIDES]
        times = [f"{each[0]:.3f} ({each[1]:.3f} to {each[2]:.3f})" if each else "" for each in both]
        moved, rates, flops = (
            " / ".join(f"{each[index]:,.{digits}f}" for each in both if each)
            for index, digits in ((3, 2), (4, 0), (5, 0))
        )
        gain = self.gain()
        cells = [self.layer, self.count, self.pattern, self.type, *times, "" if gain is None else f"{gain:+.3f}"]
        cells += [moved, rates, flops, self.note if self.error is None else f"{self.error:.1e}"]
        return "| " + " | ".join(map(str, cells)) + " |"


def heading() -> str:
    return f"| {' | '.join(TABLE)} |\n|{'---|' * len(TABLE)}"


def printed(rows: list[Row]) -> None:
    """Print totals over the network, and why each refused graph was refused."""
    print("\n| pattern | convolutions | measured | refused | unfused ms | fused ms | saved | saved where it wins |")
    print("|---|---|---|---|---|---|---|---|")
    for pattern in dict.fromkeys(row.pattern for row in rows):
        print(total([row for row in rows if row.pattern == pattern]))
    print("\nA step saves, if each layer takes its best fusions (all but `norm`):")
    for types in (("bf16",), ("bf16", "fp16", "fp16 within")):
        print(f"- graphs in {' or '.join(types)}: {step_gain(rows, types):.2f} ms")
    refusals = dict.fromkeys(f"{row.pattern}: {row.note}" for row in rows if row.note)
    print("\n".join(["\nRefusals:", *refusals]))


def total(rows: list[Row]) -> str:
    """A pattern's totals over the network in Markdown, in ms a step."""
    both = [row for row in rows if row.unfused and row.fused]
    unfused, fused = (sum(row.count * row.side(side)[0] for row in both) for side in SIDES)
    wins = sum(max(0.0, row.gain() or 0.0) for row in both)
    counts = [sum(row.count for row in group) for group in (rows, both)]
    if not any(row.moved[1] for row in rows):  # nothing to compare with
        alone = sum(row.count * row.side("unfused")[0] for row in rows if row.unfused)
        return f"| {rows[0].pattern} | {counts[0]} | | | {alone:.2f} | | | |"
    return (
        f"| {rows[0].pattern} | {counts[0]} | {counts[1]} | {counts[0] - counts[1]} | {unfused:.2f} | {fused:.2f} "
        f"| {unfused - fused:+.2f} | {wins:+.2f} |"
    )


def step_gain(rows: list[Row], types: tuple[str, ...]) -> float:
    """Milliseconds a step saves when each layer takes its best fusions of these types, without cuDNN's `norm`.

    A fused `normalised` leaves no normalised input, so it needs the fused `wgrad`. Otherwise `statistics` may be fused.
    """
    return sum(layer_gain(gains) for gains in by_layer(rows, types))


def by_layer(rows: list[Row], types: tuple[str, ...]) -> Iterator[dict[str, float]]:
    for key in dict.fromkeys((row.layer, row.normalises) for row in rows):
        gains = {}
        for row in rows:
            gain = row.gain()
            if (row.layer, row.normalises) == key and gain is not None and row.type in types:
                gains[row.pattern] = gain
        yield gains


def layer_gain(gains: dict[str, float]) -> float:
    gradient = max(0.0, *(gains.get(name, 0.0) for name in ("dgrad sums", "dgrad", "dgrad weights")))
    best = max(0.0, gains.get("statistics", 0.0))
    if "normalised" in gains and "wgrad" in gains:
        best = max(best, gains["normalised"] + gains["wgrad"])
    return best + gradient
