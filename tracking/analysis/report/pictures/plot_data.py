"""The data of a report's figures: the run that stands for a setting, its curves, and means as points."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from conf.target import Target, meets_target, parse
from tracking.analysis.compare import Estimate, Setting, Task, censoring, estimate, grouping, is_stack
from tracking.analysis.report.pictures.drawing import MOST_BARS, MOST_LINES, Point
from tracking.analysis.results import NONE, Run, Runs
from tracking.analysis.statistics import Times
from tracking.base import quantities, sensor_headings
from tracking.record import evaluations
from tracking.store.mirror import RUN_START_TAG

EVALUATION = quantities.EVAL  # prefix of the keys of evaluated metrics
TIME, RATE = quantities.TIME_TO_ACCURACY_SEC, quantities.THROUGHPUT_SAMPLES_PER_SEC
COST, KWH = quantities.COST_TO_ACCURACY_USD, quantities.ENERGY_TO_ACCURACY_KWH
# The axes of a stack by their usual names.
NAMES = {"env.cuda": "CUDA", "env.torch": "PyTorch", "env.cudnn": "cuDNN", "env.nccl": "NCCL", "env.python": "Python",
         "env.framework": "framework"}  # fmt: skip
PANELS = {words: quantities.SYSTEM + pattern for words, pattern in sensor_headings.HEADINGS.items()}


def by_stack(task: Task, key: str) -> dict[str, dict[str, dict[str, Times]]]:
    """The runs' times by model of GPU, by curve (`curve_of`) and by driver."""
    at: dict[tuple[str, str, str], list[Run]] = {}
    for setting in task.settings:
        for run in setting.runs_of(key):
            driver, curve = run.tags.get("env.driver"), curve_of(setting, run)
            if driver and curve:
                at.setdefault((run.tags.get("env.gpu", "unknown GPU"), curve, driver), []).append(run)
    by_gpu: dict[str, dict[str, dict[str, Times]]] = {}
    for (gpu, curve, driver), runs in at.items():
        times = Setting.of({}, runs, [run for run in runs if key in run.metrics]).measured(key)
        by_gpu.setdefault(gpu, {}).setdefault(curve, {})[driver] = times
    return by_gpu


def curve_of(setting: Setting, run: Run) -> str:
    """A run's name in the legend: the stack's axes except the driver (if none, CUDA), then the other labels."""
    named = {grouping.SHORT.get(axis, axis): value for axis, value in setting.labels.items() if value != NONE}
    stack = [f"{NAMES.get(axis, axis)} {value}" for axis, value in named.items()
             if is_stack(axis) and axis != "env.driver"]  # fmt: skip
    if not stack and "env.cuda" in run.tags:
        stack = [f"CUDA {run.tags['env.cuda']}"]
    others = [f"{axis}={value}" for axis, value in named.items() if not is_stack(axis) and axis != "env.gpu"]
    return " ".join([*stack, *others]) if stack else ""


def share_of(setting: Setting) -> str:
    return setting.reached.text if setting.reached else ""


def shares_of(task: Task) -> str:
    """Caption: how many runs of each setting reached the target; "" without a target."""
    reached = [setting for setting in task.settings if setting.reached]
    words = "; ".join(f"{setting.name} {share_of(setting)}" for setting in reached[:MOST_BARS])
    return f". Reached the target: {words}" if reached else ""


def bounds_of(lines: Iterable[Iterable[Point]], key: str = TIME) -> str:
    """Caption: what a hollow mark means; "" without any."""
    at_most = {point.at_most for points in lines for point in points if point.bound}
    words = "at least (≥) or at most (≤)" if len(at_most) > 1 else "at most" if at_most == {True} else "at least"
    return f". Hollow: {censoring.why_bound(key)}, so the true mean is {words} what is drawn" if at_most else ""


def middle(runs: Sequence[Run]) -> Run:
    """The run with the median time to accuracy (the faster of two in the middle), else the median rate."""
    key = TIME if any(TIME in run.metrics for run in runs) else RATE
    ordered = sorted((run for run in runs if key in run.metrics), key=lambda run: run.metrics[key], reverse=key == RATE)
    ordered = ordered or list(runs)
    return ordered[(len(ordered) - 1) // 2]


def targets_of(task: Task) -> dict[str, Target | None]:
    """The metrics of the curves, with their targets: the target metrics, else the first evaluated one."""
    params = next((run.params for run in task.runs), {})
    names, values = (params.get(f"target_{part}", "").split(",") for part in ("metric", "value"))
    if any(names):
        pairs = zip_longest(names, values[: len(names)], fillvalue="")
        return {name: parse(value) if value else None for name, value in pairs}
    keys = sorted(
        key
        for run in task.runs[:1]
        for key in run.metrics
        if key.startswith(EVALUATION) and not key.startswith(evaluations.BEST)
    )
    return {keys[0].removeprefix(EVALUATION) if keys else "accuracy": None}


def clock_start_ms(run: Run, targets: Mapping[str, Target | None], store: Runs) -> float:
    """When the clock of a run started, in ms.

    Runs that older versions recorded in MLflow have no tag for it. For these it is the first evaluation that met all
    targets, minus the time to accuracy; else the run's start plus the time before the clock.
    """
    if (start_ms := run.tags.get(RUN_START_TAG, "")).isdecimal():
        return float(start_ms)
    targets_by_key = {f"{EVALUATION}{name}": target for name, target in targets.items() if target is not None}
    if targets_by_key and TIME in run.metrics:
        history = store.history(run, targets_by_key)
        reaching = [
            {(step, time_ms) for step, time_ms, value in history.get(key, []) if meets_target(value, target)}
            for key, target in targets_by_key.items()
        ]
        if hits := set.intersection(*reaching):
            return min(time_ms for _, time_ms in hits) - 1e3 * run.metrics[TIME]
    return run.start_ms + 1e3 * run.metrics.get(quantities.TIME_INIT_SEC, 0.0)


def clock_sec(run: Run) -> float:
    """How many seconds the clock ran; infinite if unknown."""
    parts = [run.metrics.get(key) for key in censoring.OF_THE_CLOCK]
    return sum(part for part in parts if part is not None) if parts[0] is not None else math.inf


def evaluation_spans(trained: Sequence[float], evaluated: Sequence[float]) -> list[tuple[float, float]]:
    """Each evaluation as (end of its epoch, own end); the epoch ends with the last window of steps before it."""
    return [(max((time for time in trained if time <= end), default=end), end) for end in evaluated]


def panels_of(run: Run, store: Runs, start_ms: float) -> Mapping[str, list[Point]]:
    """The curve of each panel over seconds since `start_ms`: the sum of its metrics, or the mean of percentages."""
    panels: dict[str, list[Point]] = {}
    for label, pattern in PANELS.items():
        keys = [key for key in run.metrics if re.fullmatch(pattern, key)]
        at: dict[int, list[float]] = {}
        times: dict[int, int] = {}
        for rows in store.history(run, keys).values():
            for step, time_ms, value in rows:
                at.setdefault(step, []).append(value)
                times[step] = time_ms
        combine = statistics.fmean if "%" in label else sum
        points = [Point((times[step] - start_ms) / 1e3, float(combine(at[step]))) for step in sorted(at)]
        if points:
            panels[label] = points
    return panels


def moved(label: str, values: Iterable[float]) -> bool:
    """Whether a panel is worth drawing: a link without traffic is not, a share of 0 % is."""
    return "%" in label or any(values)


def points_of(task: Task, key: str) -> dict[str, Point]:
    return {setting.name: as_point(0.0, mean) for setting in task.settings if (mean := estimate(setting.measured(key)))}


def errors_of(points: Iterable[Point]) -> str:
    """Caption: the meaning of error bars; "" if none are drawn."""
    return "; error bars are standard errors" if any(point.error for point in points) else ""


def as_point(x: float, average: Estimate) -> Point:
    bounds = {"at_least": average.bound == "≥", "at_most": average.bound == "≤"}
    return Point(x, average.mean, average.error or 0.0, **bounds)


def as_version(name: str) -> list[tuple[int, float, str]]:
    """A sort key for names of drivers and curves: the versions in them."""
    return grouping.in_order(name, version=True)


def means_of(times: Mapping[str, Times]) -> dict[str, Point]:
    """The mean of each driver's runs."""
    return {driver: as_point(0.0, mean) for driver, values in times.items() if (mean := estimate(values))}


def longest(lines: Mapping[str, list[Point]]) -> dict[str, list[Point]]:
    """Up to MOST_LINES lines of two points or more, those with the most points first; each in order of devices."""
    chosen = sorted(lines.items(), key=lambda item: -len(item[1]))[:MOST_LINES]
    return {name: sorted(points, key=lambda point: point.x) for name, points in chosen if len(points) > 1}
