"""The expected data of pictures over devices (all workloads) and over batch sizes (one workload)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tracking.analysis.audit.arithmetic import moments_of, ratio
from tracking.analysis.audit.curves import Picture, first, identity
from tracking.analysis.audit.evidence import Evidence, Labels, name_of
from tracking.analysis.audit.mean_pictures import Point, line
from tracking.base import quantities

TIME = quantities.TIME_TO_ACCURACY_SEC
COUNT = "devices (number)"
MOST_WORKLOADS = 16
TIMES = {
    "time of an epoch (s)": quantities.TIME_EPOCH_SEC, "time to accuracy (s)": quantities.TIME_TO_ACCURACY_SEC,
}  # fmt: skip
FULL = "runs out of memory (share)"
BUSY = {
    "GPU utilisation (%)": quantities.UTILIZATION_GPU_UTILIZATION_PERCENTAGE,
    "CPU cores that the run used (%)": quantities.UTILIZATION_RUN_CPU_PERCENTAGE,
    "NVLink, out of a GPU (MB/s)": quantities.UTILIZATION_GPU_NVLINK_TRANSMIT_MEGABYTES_PER_SEC,
    "PCIe, out of a GPU (MB/s)": quantities.UTILIZATION_GPU_PCIE_TRANSMIT_MEGABYTES_PER_SEC,
}


def workloads(evidence: Evidence, picture: Picture) -> dict[str, Any]:
    """The times of all workloads, and speed-ups of those on several numbers of devices."""
    times = _by_name(evidence, lambda workload, setting: _mean(evidence, workload, setting, TIME))
    ups, shares = (
        _by_name(evidence, lambda workload, setting, grown=grown: _ratio(evidence, workload, setting, grown))
        for grown in (False, True)
    )
    several = {
        y: {name: points[name] for name in times if len(points.get(name, ())) > 1}
        for y, points in (("speed-up", ups), ("efficiency", shares))
    }
    return _panels({"time to accuracy (s)": (times, TIME), **{y: (points, TIME) for y, points in several.items()}})


def busy(evidence: Evidence, picture: Picture) -> dict[str, Any]:
    """Means over the training, for workloads on several numbers of devices."""
    panels = {}
    for heading, key in BUSY.items():
        points = _by_name(evidence, lambda workload, setting, key=key: _mean(evidence, workload, setting, key))
        several = {name: line for name, line in points.items() if len({point[0] for point in line}) > 1}
        if any(point[1] for line in several.values() for point in line):
            panels[heading] = (several, key)
    return _panels(panels)


def _panels(of: Mapping[str, tuple[Mapping[str, list[Point]], str]]) -> dict[str, Any]:
    return {
        identity({"x": COUNT, "y": y}): {"key": key, "lines": {name: line(points[name], key) for name in points}}
        for y, (points, key) in of.items()
        if points
    }


def _by_name(evidence: Evidence, point: Callable[..., Point | None]) -> dict[str, list[Point]]:
    lines: dict[str, list[Point]] = {}
    for workload in evidence.workloads():
        for setting in evidence.settings(workload):
            name = evidence.line_name(workload, setting)
            if made := point(workload, setting):
                lines.setdefault(f"{workload}: {name}" if name else workload, []).append(made)
    return first({name: sorted(points, key=lambda each: each[0]) for name, points in lines.items()}, MOST_WORKLOADS)


def _mean(evidence: Evidence, workload: str, setting: Labels, key: str) -> Point | None:
    sample, devices = evidence.sample(workload, setting, key), evidence.devices(workload, setting)
    moments = moments_of(sample)
    return (devices, moments[1], moments[2] or 0.0, sample.sign) if moments and devices else None


def _ratio(evidence: Evidence, workload: str, setting: Labels, grown: bool) -> Point | None:
    base = evidence.base(workload, setting, evidence.settings(workload))
    devices, fewest = (evidence.devices(workload, each) if each else None for each in (setting, base))
    if base is None or not devices or not fewest:
        return None
    own, other = (evidence.sample(workload, each, TIME) for each in (setting, base))
    quotient = ratio(TIME, own, other, devices / fewest if grown else 1.0, setting == base)
    if quotient is None:
        return None
    (_, factor, error, _), sign = quotient
    return devices, factor, error or 0.0, sign


def batches(evidence: Evidence, picture: Picture) -> dict[str, Any]:
    """A panel per kind of time, and one of the shares of runs that were out of memory."""
    workload = picture["workload"]
    settings = evidence.settings(workload)
    axis = next(axis for axis in ("batch_size", "global_batch_size") if any(axis in setting for setting in settings))
    panels: dict[tuple[str, str | None], dict[str, list[Point]]] = {}
    for setting in settings:
        if not setting.get(axis, "").isdecimal():
            continue
        rest, size = {key: value for key, value in setting.items() if key != axis}, float(setting[axis])
        name = name_of(rest) if rest else workload
        for words, key in TIMES.items():
            sample = evidence.sample(workload, setting, key)
            if moments := moments_of(sample):
                point = (size, moments[1], moments[2] or 0.0, sample.sign)
                panels.setdefault((words, key), {}).setdefault(name, []).append(point)
        every = evidence.all_of(workload, setting)
        if full := sum(run.failure == "oom" for run in every.values()):
            panels.setdefault((FULL, None), {}).setdefault(name, []).append((size, full / len(every), 0.0, ""))
    expected: dict[str, Any] = {}
    for (words, of_time), lines in panels.items():
        drawn = {name: line(sorted(points), of_time or "") for name, points in lines.items()}
        about = {"key": of_time} if of_time else {}
        expected[identity({"x": axis, "y": words})] = about | {"lines": first(drawn) if of_time else drawn}
    return expected
