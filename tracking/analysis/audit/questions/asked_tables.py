"""Recompute tables of a report: limits of time (--within), scores over a base (--over), and numbers of nodes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from conf.metric import HIGHER
from tracking.analysis.audit.arithmetic import Moments, Observations, moments_of, text_of, tolerance
from tracking.analysis.audit.evidence import (
    SHORT,
    Content,
    Evidence,
    Labels,
    Rows,
    That,
    mean_of,
    name_of,
    without_devices,
)
from tracking.base import quantities

TIME, COST = quantities.TIME_TO_ACCURACY_SEC, quantities.COST_TO_ACCURACY_USD
IN_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400}


def within(content: Content) -> Rows:
    """A row per workload and limit."""
    evidence, limits = content.evidence, content.report["within"]
    rows: Rows = {}
    if len({*limits}) < len(limits):
        raise ValueError("a limit is there twice")
    for workload in evidence.workloads():
        for limit in limits:
            number, unit = re.fullmatch(r"([\d.]+)([a-z]+)", limit).groups()  # type: ignore[union-attr]
            measured = _settings_by(evidence, workload, float(number) * IN_SECONDS[unit])
            if measured:
                rows[f"{workload} {limit}"] = {"workload": workload, "within": limit, **_smallest(evidence, measured)}
                rows[f"{workload} {limit}"] |= _cheapest(evidence, workload, measured)
    costs = ("cheapest", "its cost (USD)", "its time to accuracy", "its runs in time")
    if not any(row["cheapest"] or row["priced"] for row in rows.values()):
        return {name: {key: row[key] for key in row.keys() - {*costs, "priced"}} for name, row in rows.items()}
    return {name: {key: row[key] for key in row.keys() - {"priced"}} for name, row in rows.items()}


@dataclass(frozen=True)
class Measured:
    """A setting's time with a bound's sign, how many of its `n` runs were in time, and its devices."""

    setting: Labels
    moments: Moments
    sign: str
    in_time: int
    n: int
    devices: float

    @property
    def fits(self) -> bool:
        return self.in_time == self.n

    @property
    def mean(self) -> float:
        return self.moments[1]

    @property
    def proof(self) -> str:
        return _proof(self.in_time, self.n)


def _settings_by(evidence: Evidence, workload: str, limit_sec: float) -> list[Measured]:
    measured = []
    for setting in evidence.settings(workload):
        sample = evidence.sample(workload, setting, TIME)
        moments, devices = moments_of(sample), evidence.devices(workload, setting)
        known = [*sample.numbers, *(time for time in sample.stopped if time >= limit_sec)]
        n = len(known) + len(evidence.short(workload, setting))
        if moments and n and devices:
            good = len([time for time in sample.numbers if time <= limit_sec])
            measured.append(Measured(setting, moments, sample.sign, good, n, devices))
    return measured


def _smallest(evidence: Evidence, measured: Sequence[Measured]) -> dict[str, object]:
    fitting = sorted((each for each in measured if each.fits), key=lambda each: (each.devices, each.mean))
    chosen = fitting[0] if fitting else min(measured, key=lambda each: (-each.in_time / each.n, each.mean))
    return {
        "fewest devices": name_of(chosen.setting) if fitting else f"none; nearest: {name_of(chosen.setting)}",
        "devices": f"{chosen.devices:g}",
        "time to accuracy": clock_text(chosen.moments, chosen.sign),
        "runs in time": chosen.proof,
    }


def _cheapest(evidence: Evidence, workload: str, measured: Sequence[Measured]) -> dict[str, object]:
    costs = [moments_of(evidence.sample(workload, each.setting, COST)) for each in measured]
    order = [
        (bool(each.sign), cost[1], each.mean, place)
        for place, (cost, each) in enumerate(zip(costs, measured, strict=True))
        if cost and each.fits
    ]
    if not order:
        blank = dict.fromkeys(("cheapest", "its cost (USD)", "its time to accuracy", "its runs in time"), "")
        return blank | {"priced": any(costs)}
    chosen = measured[min(order)[3]]
    return {
        "cheapest": name_of(chosen.setting),
        "its cost (USD)": mean_of(evidence.sample(workload, chosen.setting, COST), 1.0, COST),
        "its time to accuracy": clock_text(chosen.moments, chosen.sign),
        "its runs in time": chosen.proof,
        "priced": True,
    }


def _proof(good: int, n: int) -> str:
    """The words with the share at which `good` or more runs of n have a probability of 5 %, found by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        tail = math.fsum(math.comb(n, k) * middle**k * (1 - middle) ** (n - k) for k in range(good, n + 1))
        low, high = (middle, high) if tail < 0.05 else (low, middle)
    return f"{good} of {n}, at least {100 * low if good else 0:.0f} %"


def clock_text(moments: Moments, sign: str) -> str:
    """A time as printed: in seconds, minutes, or hours and minutes."""
    _, mean, error, _ = moments
    if mean >= 3600:
        parts = [f"{minutes // 60:,}:{minutes % 60:02d}" for minutes in (round(mean / 60), round((error or 0) / 60))]
        about = "" if error is None else f" ± {parts[1]} h"
        if error is not None and error < 60:
            return f"{sign} {parts[0]} h ± {error:.2g} s".strip()
        return f"{sign} {parts[0]}".strip() + (about or " h")
    size, unit = (60, "min") if mean >= 120 else (1, "s")
    return f"{text_of(mean / size, None if error is None else error / size, None, sign)} {unit}"


def over(content: Content) -> Rows:
    """A row per setting, compared with the setting that has the base's values and is otherwise the same."""
    evidence, base, rows = content.evidence, content.report["over"], Rows()
    long = {SHORT.get(key, key): value for key, value in base.items()}
    for workload in evidence.workloads() if base else ():
        settings = evidence.settings(workload)
        named = [setting for setting in settings if long.items() <= _long(setting).items()]
        for setting in settings:
            same = [other for other in named if _beside(other, long) == _beside(setting, long)]
            held = same[0] if same else named[0] if len(named) == 1 else None
            score = _score(evidence, workload, setting, held) if held else ""
            row = {"workload": workload, "setting": name_of(setting), "base": name_of(held) if held else "none"}
            rows[f"{workload} {name_of(setting)}"] = row | {"score": score}
    return rows


def _long(setting: Labels) -> dict[str, str]:
    return {SHORT.get(axis, axis): value for axis, value in setting.items()}


def _beside(setting: Labels, base: Mapping[str, str]) -> dict[str, str]:
    return {axis: value for axis, value in _long(setting).items() if axis not in base}


def gain_of(evidence: Evidence, workload: str, setting: Labels, base: Labels, key: str) -> That | str:
    """Accepts, as printed, how many times better a setting is than the base; "" if it is not known or has no ratio."""
    direction, own, other = (
        evidence.better(workload, key),
        *(evidence.sample(workload, each, key) for each in (setting, base)),
    )
    top, bottom = moments_of(own), moments_of(other)
    if direction is None or top is None or bottom is None or min(top[1], bottom[1]) <= 0:
        return ""
    if setting == base:
        return text_of(1.0, None, None)
    if own.num_short and other.num_short:
        return ""
    factor = top[1] / bottom[1] if direction == HIGHER else bottom[1] / top[1]
    error = None
    if top[2] is not None and bottom[2] is not None:
        error = factor * math.sqrt((top[2] / top[1]) ** 2 + (bottom[2] / bottom[1]) ** 2)
    return _printed(factor, error, _sign(own, other), tolerance(key))


def _score(evidence: Evidence, workload: str, setting: Labels, base: Labels) -> That | str:
    """What `gain_of` accepts for the report's metric, or why no ratio says which setting is better."""
    moments = [moments_of(evidence.sample(workload, each, evidence.metric)) for each in (setting, base)]
    if any(each and each[1] <= 0 for each in moments):
        return "none: a ratio needs means above 0"
    return gain_of(evidence, workload, setting, base, evidence.metric)


def _sign(own: Observations, other: Observations) -> str:
    """The sign of a gain if one of its means is a bound: the side with a missing run is worse than its mean."""
    return "≤" if own.num_short else "≥" if other.num_short else ""


def _printed(mean: float, error: float | None, sign: str, near: float) -> That:
    shifts = (1.0, 1 - near, 1 + near)
    texts = {text_of(a * mean, None if error is None else b * error, None, sign) for a, b in product(shifts, shifts)}
    return That(lambda text: text in texts, text_of(mean, error, None, sign))


def shapes(content: Content) -> Rows:
    """A row per number of devices that was run on several numbers of nodes."""
    evidence = content.evidence
    groups: dict[tuple[str, str, float], dict[int, Labels]] = {}
    for workload in evidence.workloads():
        for setting in evidence.settings(workload):
            nodes = {str(run.params.get("nodes", "")) for run in evidence.ended(workload, setting).values()}
            devices = evidence.devices(workload, setting)
            if devices and len(nodes) == 1 and (number := nodes.pop()).isdecimal():
                rest = without_devices(setting)
                key = (workload, name_of(rest) if rest else "", devices)
                groups.setdefault(key, {})[int(number)] = setting
    groups = {key: group for key, group in groups.items() if len(group) > 1}
    counts = sorted({number for group in groups.values() for number in group})
    rows: Rows = {}
    for (workload, name, devices), group in groups.items():
        row: Rows = {"workload": workload, "setting": name, "devices": f"{devices:g}"}
        for count in counts:
            row |= _of_nodes(evidence, workload, group, count, gained=count != counts[0])
        rows[f"{workload} {name} {devices:g}"] = row
    return rows


def _of_nodes(evidence: Evidence, workload: str, group: Mapping[int, Labels], count: int, gained: bool) -> Rows:
    """The cells of `count` nodes: the mean, and its gain over the fewest nodes of the row."""
    facts, setting, fewest = quantities.quantity(evidence.metric), group.get(count), min(group)
    name = "1 node" if count == 1 else f"{count} nodes"
    sample = evidence.sample(workload, setting, evidence.metric) if setting else Observations(())
    scale = facts.scale if facts.heading else 1.0
    cells: Rows = {f"{facts.heading or evidence.metric} on {name}": mean_of(sample, scale, evidence.metric)}
    apart = setting is not None and count != fewest
    gain = _score(evidence, workload, setting, group[fewest]) if setting and apart else ""
    return cells | ({f"gain on {name}": gain} if gained else {})
