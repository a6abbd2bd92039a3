"""How near a run came to its limits: for each, the ceiling, the share reached, and the time without the limit.

That time is a lower bound, so the gain is an upper bound: once a limit is gone, what it hid takes time. Pure functions
of measurements. Ceilings that were not measured are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tracking.base.number_text import significant
from tracking.measure.bottleneck.activity import PAIR
from tracking.measure.bottleneck.ceilings import Ceilings

MIN_SHARE = 0.01  # limits with a smaller share of the time get no row
SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"))


@dataclass(frozen=True)
class Reached:
    """A ceiling's rate in `unit`, and the mean share of it that a run's training reached."""

    ceiling: float
    unit: str
    share: float


def rows(
    shares: Mapping[str, float], total_sec: float, means: Mapping[str, float], measured: Ceilings | None,
    precision: str, figures: Mapping[str, float],
) -> list[dict[str, Any]]:  # fmt: skip
    """A row for each limit, largest first: `cause`, `share` of the time, and `at_least_sec`.

    With a measured ceiling also `ceiling`, `unit` and `reached`. `shares` come from time_shares.divide, `figures` from
    activity.utilization.
    """
    ceilings = {
        "dram": _by_counter(measured, means, "copy", "dram_bandwidth_percentage"),
        "tensor": _by_counter(measured, means, f"matmul/{precision}", "tensor_activity_percentage"),
        "fp32": _by_counter(measured, means, f"matmul/{precision}", "fp32_activity_percentage"),
        "exchange": _by_links(means, figures),
        "processor": _by_percentage(means, "run_cpu_percentage", "% of the cores"),
        "power": _by_percentage(means, "gpu_sm_clock_percentage", "% of the highest clock"),
    }
    named = {cause: share for cause, share in shares.items() if cause != "unknown" and share >= MIN_SHARE}
    return [
        {"cause": cause, "share": round(share, 4), "at_least_sec": round(total_sec * (1 - share), 4)}
        | _ceiling_fields(ceilings.get(cause))
        for cause, share in sorted(named.items(), key=lambda item: -item[1])
    ]


def words(row: Mapping[str, Any], total_sec: float) -> str:
    """A row in words: `would take at least 3.1 s instead of 5.5 s; the run reached 66 % of 3.9 TB/s`."""
    bound = f"would take at least {significant(row['at_least_sec'])} s instead of {significant(total_sec)} s"
    if "reached" not in row:
        return bound
    return f"{bound}; the run reached {100 * row['reached']:.0f} % of {amount(row['ceiling'], row['unit'])}"


def _by_counter(measured: Ceilings | None, means: Mapping[str, float], work: str, counter: str) -> Reached | None:
    """The share reached by a GPU counter, relative to its value while the ceiling was measured."""
    rate = measured.rate(work) if measured else None
    at_ceiling = measured.counter(work, counter) if measured else None
    busy = means.get(f"gpu_{counter}")
    if measured is None or rate is None or at_ceiling is None or busy is None:
        return None
    return Reached(rate, str(measured.ceilings[work]["unit"]), busy / at_ceiling)


def _by_links(means: Mapping[str, float], figures: Mapping[str, float]) -> Reached | None:
    """A GPU's outgoing traffic over NVLink, else PCIe, relative to a copy between the slowest pair."""
    sent_mb = means.get("gpu_nvlink_transmit_megabytes_per_sec") or means.get("gpu_pcie_transmit_megabytes_per_sec")
    pair_mb = figures.get(PAIR)
    return Reached(pair_mb * 1e6, "B/s", sent_mb / pair_mb) if sent_mb is not None and pair_mb else None


def _by_percentage(means: Mapping[str, float], key: str, unit: str) -> Reached | None:
    return Reached(100.0, unit, means[key] / 100.0) if key in means else None


def _ceiling_fields(reached: Reached | None) -> dict[str, Any]:
    if reached is None:
        return {}
    return {"ceiling": reached.ceiling, "unit": reached.unit, "reached": round(reached.share, 4)}


def amount(value: float, unit: str) -> str:
    """`3.9 TB/s`; a ceiling in percent is named by its unit alone: `the cores`."""
    if unit.startswith("%"):
        return unit.removeprefix("% of ")
    scale, letter = next(((scale, letter) for scale, letter in SCALES if value >= scale), (1.0, ""))
    return f"{significant(value / scale)} {letter}{unit}"
