"""What the figures of a report show: points from settings, and curves from the histories of a few runs."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tracking.compare import (
    DEVICES,
    Estimate,
    Setting,
    Task,
    estimate,
    estimates,
    is_stack,
    mean_and_standard_error,
    speed_up,
)
from tracking.report import charts
from tracking.report.charts import MOST_LINES, Lines, Point
from tracking.results import Run, Runs
from tracking.run import evaluations

TIME, RATE, COST = "time/to_accuracy_sec", "throughput/samples_per_sec", "cost/to_accuracy_usd"
PANELS = {
    "GPU utilisation (%)": r"system/gpu_\d+_utilization_percentage",
    "CPU utilisation (%)": r"system/cpu_utilization_percentage",
    "disk, read and written (MB/s)": r"system/disk_(read|write)_megabytes_per_sec",
    "network, in and out (MB/s)": r"system/network_(receive|transmit)_megabytes_per_sec",
}


@dataclass(frozen=True)
class Plot:
    name: str  # of its file
    caption: str
    png: bytes


class Plotter:
    """Draws the figures of a report's workloads; of runs it reads the histories of one a setting, the middle one."""

    def __init__(self, store: Runs, tasks: Sequence[Task], progress: Callable[[], None]) -> None:
        self._store = store
        self._workloads = tasks
        self._progress = progress
        self._starts_ms: dict[str, float] = {}  # when the clock of a run started, by its id

    def plots(self) -> Iterator[Plot]:
        """Every figure that the runs have the data for."""
        for number, task in enumerate(self._workloads, 1):
            drawn = (self.accuracy, self.scaling, self.throughput, self.stacks, self.utilisation, self.cost)
            for draw in drawn:
                plot = draw(task)
                self._progress()
                if plot:
                    yield Plot(f"{number}-{plot.name}", f"{task.title}: {plot.caption}", plot.png)
        if self.means and (plot := self.mean_utilisation()):
            yield plot

    def accuracy(self, task: Task) -> Plot | None:
        metric, target = _target(task)
        by_epoch: dict[str, list[Point]] = {}
        by_time: dict[str, list[Point]] = {}
        for setting, run in self._middles(task):
            found = self._store.history(run, [f"eval/{metric}", "epoch"])
            epochs = {step: value for step, _, value in found.get("epoch", [])}
            rows = found.get(f"eval/{metric}", [])
            start_ms = self._starts_ms[run.id] = _clock_start_ms(run, rows, target)
            by_epoch[setting.name] = [Point(epochs[step], value) for step, _, value in rows if step in epochs]
            by_time[setting.name] = [Point((time_ms - start_ms) / 1e3, value) for _, time_ms, value in rows]
        if not any(by_epoch.values()):
            return None
        drawn = charts.accuracy(metric, by_epoch, by_time, target)
        return Plot("accuracy", f"{metric} over epochs and over time; {self._said(task)}", charts.png(drawn))

    def scaling(self, task: Task) -> Plot | None:
        key, unit = (TIME, "time to accuracy (s)")
        if not any(setting.values(TIME) for setting in task.settings):
            key, unit = ("time/epoch_sec", "time of an epoch (s)")
        seconds: dict[str, list[Point]] = {}
        speeds: dict[str, list[Point]] = {}
        for setting in task.settings:
            base, found = estimates.base_of(setting, task.settings), estimate(setting.values(key))
            if base is None or found is None or setting.devices is None:
                continue
            name = " ".join(f"{key}={value}" for key, value in setting.labels.items() if key not in DEVICES)
            seconds.setdefault(name or task.title, []).append(_point(setting.devices, found))
            if ratio := speed_up(setting, base, key):
                speeds.setdefault(name or task.title, []).append(_point(setting.devices, ratio[0]))
        lines, ups = (_longest(found) for found in (seconds, speeds))
        if not lines:
            return None
        caption = f"{unit.rpartition(' (')[0]} and speed-up over devices; error bars are standard errors"
        return Plot("scaling", caption, charts.png(charts.scaling(lines, ups, unit)))

    def throughput(self, task: Task) -> Plot | None:
        values = _points(task, RATE)
        if not values:
            return None
        some = f" of the first {charts.MOST_BARS} settings" if len(values) > charts.MOST_BARS else ""
        return Plot(
            "throughput",
            f"steady-state rate{some}; error bars are standard errors",
            charts.png(charts.bars(values, "throughput (samples/s)")),
        )

    def stacks(self, task: Task) -> Plot | None:
        """Drawn where runs of several drivers or CUDA versions are there."""
        key = TIME if any(setting.values(TIME) for setting in task.settings) else "time/train_sec"
        found: dict[str, dict[str, list[float]]] = {}
        for setting in task.settings:
            others = [f"{axis}={value}" for axis, value in setting.labels.items() if not is_stack(axis)]
            for run in setting.runs:
                driver, cuda = run.tags.get("env.driver"), run.tags.get("env.cuda")
                if driver and cuda and key in run.metrics:
                    name = " ".join([f"CUDA {cuda}", *others])
                    found.setdefault(name, {}).setdefault(driver, []).append(run.metrics[key])
        drivers = {driver for values in found.values() for driver in values}
        versions = {name.split()[1] for name in found}
        asked = any(is_stack(axis) for setting in task.settings for axis in setting.labels)
        along = any(len(by_driver) > 1 for by_driver in found.values())  # a curve, and not single points
        if max(len(drivers), len(versions)) < 2 or not (asked or along) or len(found) > MOST_LINES:
            return None
        curves = {
            cuda: {driver: _point(0.0, mean) for driver, values in found[cuda].items() if (mean := estimate(values))}
            for cuda in sorted(found)
        }
        label = "time to accuracy (s)" if key == TIME else "training time (s)"
        caption = "run time over driver and CUDA, on an axis that need not begin at 0; error bars are standard errors"
        return Plot("stacks", caption, charts.png(charts.stacks(curves, label)))

    def utilisation(self, task: Task) -> Plot | None:
        panels: dict[str, dict[str, list[Point]]] = {label: {} for label in PANELS}
        for setting, run in self._middles(task):
            start_ms = self._starts_ms.get(run.id, _clock_start_ms(run, [], None))
            for label, points in _panels(run, self._store, start_ms).items():
                panels[label][setting.name] = points
                timed = [point.y for point in points if point.x >= 0]  # and not of imports and compilation
                mean = statistics.fmean(timed or [point.y for point in points])
                self.means.setdefault(label, {}).setdefault(task.title, []).append(mean)
        shown: dict[str, Lines] = {label: lines for label, lines in panels.items() if lines}
        if not shown:
            return None
        caption = f"utilisation over time, before the clock (left of 0) and on it; {self._said(task)}"
        return Plot("utilisation", caption, charts.png(charts.utilisation(shown)))

    def cost(self, task: Task) -> Plot | None:
        seconds, dollars = _points(task, TIME), _points(task, COST)
        points = {
            name: Point(seconds[name].y, dollars[name].y, dollars[name].error, seconds[name].error)
            for name in dollars
            if name in seconds
        }
        if not points:
            return None
        caption = "cost against time; error bars are standard errors"
        return Plot("cost", caption, charts.png(charts.cost(points)))

    def mean_utilisation(self) -> Plot | None:
        panels = {
            label: {name: _point(0.0, Estimate(*mean_and_standard_error(values), len(values))) for name, values in
                    found.items()}
            for label, found in self.means.items()
        }  # fmt: skip
        of = "over the middle runs of each workload's settings"
        caption = f"Mean utilisation on the clock, {of}; error bars are standard errors"
        return Plot("mean-utilisation", caption, charts.png(charts.mean_utilisation(panels)))

    @cached_property
    def means(self) -> dict[str, dict[str, list[float]]]:
        """By panel and workload, the mean of each run whose utilisation was drawn."""
        return {}

    def _middles(self, task: Task) -> list[tuple[Setting, Run]]:
        there = [setting for setting in task.settings if setting.runs][:MOST_LINES]
        return [(setting, middle(setting.runs)) for setting in there]

    def _said(self, task: Task) -> str:
        there = sum(bool(setting.runs) for setting in task.settings)
        of = f"{MOST_LINES} of {there} settings" if there > MOST_LINES else "each setting"
        return f"of {of} the run in the middle"


def middle(runs: Sequence[Run]) -> Run:
    """The run with the median time to accuracy (the faster of two in the middle), else the median rate."""
    key = TIME if any(TIME in run.metrics for run in runs) else RATE
    ordered = sorted((run for run in runs if key in run.metrics), key=lambda run: run.metrics[key]) or list(runs)
    return ordered[(len(ordered) - 1) // 2]


def _target(task: Task) -> tuple[str, float | None]:
    params = next((run.params for run in task.runs), {})
    metric, value = params.get("target_metric", "").split(",")[0], params.get("target_value", "").split(",")[0]
    if not metric:
        keys = sorted(
            key
            for run in task.runs[:1]
            for key in run.metrics
            if key.startswith("eval/") and not key.startswith(evaluations.BEST)
        )
        metric = keys[0].removeprefix("eval/") if keys else "accuracy"
    return metric, float(value) if value else None


def _clock_start_ms(run: Run, rows: Sequence[tuple[int, int, float]], target: float | None) -> float:
    """When the clock started: from the evaluation that ended it, else by what came before."""
    hits = [time_ms for _, time_ms, value in rows if target is not None and value >= target]
    if hits and TIME in run.metrics:
        return hits[0] - 1e3 * run.metrics[TIME]
    return run.start_ms + 1e3 * run.metrics.get("time/init_sec", 0.0)


def _panels(run: Run, store: Runs, start_ms: float) -> Mapping[str, list[Point]]:
    """For each panel the sum of its metrics at each sample, over seconds since `start_ms`; of several GPUs the mean."""
    found: dict[str, list[Point]] = {}
    for label, pattern in PANELS.items():
        keys = [key for key in run.metrics if re.fullmatch(pattern, key)]
        at: dict[int, list[float]] = {}
        times: dict[int, int] = {}
        for rows in store.history(run, keys).values():
            for step, time_ms, value in rows:
                at.setdefault(step, []).append(value)
                times[step] = time_ms
        combine = statistics.fmean if "GPU" in label else sum
        points = [Point((times[step] - start_ms) / 1e3, float(combine(at[step]))) for step in sorted(at)]
        if points:
            found[label] = points
    return found


def _points(task: Task, key: str) -> dict[str, Point]:
    return {setting.name: _point(0.0, found) for setting in task.settings if (found := estimate(setting.values(key)))}


def _point(x: float, found: Estimate) -> Point:
    return Point(x, found.mean, found.error or 0.0)


def _longest(lines: Mapping[str, list[Point]]) -> dict[str, list[Point]]:
    """As many lines as can be told apart, by the number of devices, those with most points first."""
    chosen = sorted(lines.items(), key=lambda item: -len(item[1]))[:MOST_LINES]
    return {name: sorted(points, key=lambda point: point.x) for name, points in chosen if len(points) > 1}
