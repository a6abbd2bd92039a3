"""The due data of a picture of times over batch sizes."""

from __future__ import annotations

from typing import Any

from tracking.analysis.audit.arithmetic import moments_of
from tracking.analysis.audit.curves import Picture, first, identity
from tracking.analysis.audit.evidence import Evidence, name_of
from tracking.analysis.audit.mean_pictures import Point, line
from tracking.base import quantities

TIMES = {
    "time of an epoch (s)": quantities.TIME_EPOCH_SEC, "time to accuracy (s)": quantities.TIME_TO_ACCURACY_SEC,
}  # fmt: skip
FULL = "runs out of memory (share)"


def batches(evidence: Evidence, picture: Picture) -> dict[str, Any]:
    """A panel a time, and one of the shares of runs that were out of memory."""
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
                point = (size, moments[1], moments[2] or 0.0, bool(sample.num_short))
                panels.setdefault((words, key), {}).setdefault(name, []).append(point)
        every = evidence.all_of(workload, setting)
        if full := sum(run.failure == "oom" for run in every.values()):
            panels.setdefault((FULL, None), {}).setdefault(name, []).append((size, full / len(every), 0.0, False))
    due: dict[str, Any] = {}
    for (words, of_time), lines in panels.items():
        drawn = {name: line(sorted(points), of_time or "") for name, points in lines.items()}
        about = {"key": of_time} if of_time else {}
        due[identity({"x": axis, "y": words})] = about | {"lines": first(drawn) if of_time else drawn}
    return due
