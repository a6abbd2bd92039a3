"""How near a run came to what is possible: of each limit its measured ceiling, the share of that which was reached, and
the least time that the run would take without the limit.

That time is a lower bound, and so the gain an upper one: where one limit is gone, what it hid behind it takes time.
Pure functions of what was measured; a ceiling that was not measured is not named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tracking.measure.bottleneck.ceilings import Ceilings
from tracking.measure.bottleneck.utilization import PAIR

LEAST_SHARE = 0.01  # of the time; a limit that takes less is not worth a row
SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"))


@dataclass(frozen=True)
class Reached:
    """Of a ceiling, in `unit`: its rate, and the share of it that a run reached, as a mean over its training."""

    ceiling: float
    unit: str
    share: float


def rows(
    shares: Mapping[str, float], total_sec: float, means: Mapping[str, float], measured: Ceilings | None,
    precision: str, figures: Mapping[str, float],
) -> list[dict[str, Any]]:  # fmt: skip
    """For each limit, the largest first: `cause`, `share` of the time, `at_least_sec`, and where a ceiling was measured
    `ceiling`, `unit` and `reached`.

    `shares` are those of time_shares.divide, `figures` those of utilization.figures.
    """
    ceilings = {
        "dram": _by_counter(measured, means, "copy", "dram_bandwidth_percentage"),
        "tensor": _by_counter(measured, means, f"matmul/{precision}", "tensor_activity_percentage"),
        "fp32": _by_counter(measured, means, f"matmul/{precision}", "fp32_activity_percentage"),
        "exchange": _of_links(means, figures),
        "processor": _of_all(means, "run_cpu_percentage", "% of the cores"),
        "power": _of_all(means, "gpu_sm_clock_percentage", "% of the highest clock"),
    }
    named = {cause: share for cause, share in shares.items() if cause != "unknown" and share >= LEAST_SHARE}
    return [
        {"cause": cause, "share": round(share, 4), "at_least_sec": round(total_sec * (1 - share), 4)}
        | _plain(ceilings.get(cause))
        for cause, share in sorted(named.items(), key=lambda item: -item[1])
    ]


def words(row: Mapping[str, Any], total_sec: float) -> str:
    """`at least 3.1 s, now 5.5 s; 66 % of 3.9 TB/s reached`."""
    bound = f"at least {row['at_least_sec']:.3g} s, now {total_sec:.3g} s"
    if "reached" not in row:
        return bound
    return f"{bound}; {100 * row['reached']:.0f} % of {_amount(row['ceiling'], row['unit'])} reached"


def _by_counter(measured: Ceilings | None, means: Mapping[str, float], work: str, counter: str) -> Reached | None:
    """By a counter of the GPU's, and what it said while the ceiling was measured."""
    rate = measured.rate(work) if measured else None
    at_ceiling = measured.counter(work, counter) if measured else None
    busy = means.get(f"gpu_{counter}")
    if measured is None or rate is None or at_ceiling is None or busy is None:
        return None
    return Reached(rate, str(measured.ceilings[work]["unit"]), busy / at_ceiling)


def _of_links(means: Mapping[str, float], figures: Mapping[str, float]) -> Reached | None:
    """What left a GPU, over NVLink or else PCIe, of a copy between the slowest pair."""
    sent = means.get("gpu_nvlink_transmit_megabytes_per_sec") or means.get("gpu_pcie_transmit_megabytes_per_sec")
    pair = figures.get(PAIR)
    return Reached(pair * 1e6, "B/s", sent / pair) if sent is not None and pair else None


def _of_all(means: Mapping[str, float], key: str, unit: str) -> Reached | None:
    return Reached(100.0, unit, means[key] / 100.0) if key in means else None


def _plain(reached: Reached | None) -> dict[str, Any]:
    if reached is None:
        return {}
    return {"ceiling": reached.ceiling, "unit": reached.unit, "reached": round(reached.share, 4)}


def _amount(value: float, unit: str) -> str:
    if unit.startswith("%"):
        return unit.removeprefix("% of ")
    scale, letter = next(((scale, letter) for scale, letter in SCALES if value >= scale), (1.0, ""))
    return f"{value / scale:.3g} {letter}{unit}"
