"""What the figures of a report show: points from settings, and curves from the histories of a few runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from conf.target import limit
from tracking.compare import DEVICES, Estimate, Setting, Task, estimate, estimates, is_stack, speed_up
from tracking.report import charts, roofline_chart, stack_chart
from tracking.report.drawing import MOST_BARS, MOST_LINES, Lines, Point, png
from tracking.report.plot_data import (
    COST,
    PANELS,
    RATE,
    TIME,
    as_point,
    as_version,
    bounds_of,
    by_stack,
    clock_sec,
    clock_start_ms,
    evaluation_spans,
    longest,
    means_of,
    middle,
    moved,
    panels_of,
    points_of,
    share_of,
    shares_of,
    target_of,
)
from tracking.results import Run, Runs
from tracking.statistics import mean_and_standard_error, reached_by


@dataclass(frozen=True)
class Plot:
    name: str  # its file's name
    caption: str
    png: bytes


class Plotter:
    """Draws the figures of a report's workloads; of runs it reads the histories of one a setting, the middle one.

    `about_stacks` is what the report says of each workload's stacks, by its title.
    """

    def __init__(
        self, store: Runs, tasks: Sequence[Task], progress: Callable[[], None],
        about_stacks: Mapping[str, Sequence[str]],
    ) -> None:  # fmt: skip
        self._store = store
        self._about_stacks = about_stacks
        self._workloads = tasks
        self._progress = progress
        self._starts_ms: dict[str, float] = {}  # when the clock of a run started, by its id
        # Of a setting, the seconds of the clock at which each epoch and its evaluation ended.
        self._evaluated: dict[str, list[tuple[float, float]]] = {}

    def plots(self) -> Iterator[Plot]:
        """Every figure that the runs have the data for."""
        for number, task in enumerate(self._workloads, 1):
            drawn = (
                self.accuracy,
                self.reached,
                self.scaling,
                self.throughput,
                self.stacks,
                self.utilisation,
                self.cost,
            )
            for draw in drawn:
                plot = draw(task)
                self._progress()
                if plot:
                    yield Plot(f"{number}-{plot.name}", f"{task.title}: {plot.caption}", plot.png)
        if self.means and (plot := self.mean_utilisation()):
            yield plot
        if plot := self.roofline():
            yield plot

    def accuracy(self, task: Task) -> Plot | None:
        metric, target = target_of(task)
        by_epoch: dict[str, list[Point]] = {}
        by_time: dict[str, list[Point]] = {}
        for setting, run in self._middles(task):
            history = self._store.history(run, [f"eval/{metric}", "epoch", "train/loss"])
            epochs = {step: value for step, _, value in history.get("epoch", [])}
            rows = history.get(f"eval/{metric}", [])
            start_ms = self._starts_ms[run.id] = clock_start_ms(run, rows, target)
            by_epoch[setting.name] = [Point(epochs[step], value) for step, _, value in rows if step in epochs]
            by_time[setting.name] = [Point((time_ms - start_ms) / 1e3, value) for _, time_ms, value in rows]
            trained = [(time_ms - start_ms) / 1e3 for _, time_ms, _ in history.get("train/loss", [])]
            self._evaluated[setting.name] = evaluation_spans(trained, [point.x for point in by_time[setting.name]])
        if not any(by_epoch.values()):
            return None
        drawn = charts.accuracy(metric, by_epoch, by_time, None if target is None else limit(target))
        return Plot("accuracy", f"{metric} over epochs and over time; {self._said(task)}", png(drawn))

    def reached(self, task: Task) -> Plot | None:
        there = [setting for setting in task.settings if setting.times(TIME).n][:MOST_LINES]
        if not any(setting.times(TIME).reached for setting in there):
            return None
        steps: dict[str, list[Point]] = {}
        crosses: dict[str, list[Point]] = {}
        for setting in there:
            times, name = setting.times(TIME), f"{setting.name}: {share_of(setting)}"
            steps[name] = [Point(*step) for step in reached_by(times)]
            crosses[name] = [
                Point(sec, max((point.y for point in steps[name] if point.x <= sec), default=0.0))
                for sec in times.censored
            ]
        caption = "share of runs that has reached the target over time (Kaplan and Meier), with the share of all runs"
        drawn = charts.reached(steps, crosses)
        return Plot("reached", f"{caption} and its 95 % interval", png(drawn))

    def scaling(self, task: Task) -> Plot | None:
        key, unit = (TIME, "time to accuracy (s)")
        if not any(setting.values(TIME) for setting in task.settings):
            key, unit = ("time/epoch_sec", "time of an epoch (s)")
        seconds: dict[str, list[Point]] = {}
        speeds: dict[str, list[Point]] = {}
        for setting in task.settings:
            base, mean = estimates.base_of(setting, task.settings), estimate(setting.times(key))
            if base is None or mean is None or setting.devices is None:
                continue
            name = " ".join(f"{key}={value}" for key, value in setting.labels.items() if key not in DEVICES)
            seconds.setdefault(name or task.title, []).append(as_point(setting.devices, mean))
            if ratio := speed_up(setting, base, key):
                speeds.setdefault(name or task.title, []).append(as_point(setting.devices, ratio[0]))
        lines, ups = (longest(points) for points in (seconds, speeds))
        if not lines:
            return None
        caption = f"{unit.rpartition(' (')[0]} and speed-up over devices; error bars are standard errors"
        caption += shares_of(task) if key == TIME else ""
        return Plot("scaling", caption, png(charts.scaling(lines, ups, unit)))

    def throughput(self, task: Task) -> Plot | None:
        values = points_of(task, RATE)
        if not values:
            return None
        some = f" of the first {MOST_BARS} settings" if len(values) > MOST_BARS else ""
        return Plot(
            "throughput",
            f"steady-state rate{some}; error bars are standard errors",
            png(charts.bars(values, "throughput (samples/s)")),
        )

    def stacks(self, task: Task) -> Plot | None:
        """Drawn where runs of several drivers or other stacks are there; below it stands what is said of them."""
        key = TIME if any(setting.values(TIME) for setting in task.settings) else "time/train_sec"
        times = by_stack(task, key)
        curves = {name for panel in times.values() for name in panel}
        by_driver = [drivers for panel in times.values() for drivers in panel.values()]
        drivers = sorted({driver for points in by_driver for driver in points}, key=as_version)
        asked = any(is_stack(axis) for setting in task.settings for axis in setting.labels)
        along = any(len(points) > 1 for points in by_driver)  # a curve, and not single points
        if max(len(drivers), len(curves)) < 2 or not (asked or along) or len(curves) > MOST_LINES:
            return None
        panels = {
            gpu: {name: means_of(panel[name]) for name in sorted(panel, key=as_version)}
            for gpu, panel in sorted(times.items())
        }
        label = "time to accuracy (s)" if key == TIME else "training time (s)"
        caption = f"{label.rpartition(' (')[0]} over drivers, on axes that need not begin at 0; error bars are standard"
        caption += " errors"
        caption += bounds_of(task) if key == TIME else ""
        words = " ".join(self._about_stacks.get(task.title, []))
        drawn = stack_chart.stacks(panels, drivers, label)
        return Plot("stacks", f"{caption}. {words}".strip(), png(drawn))

    def utilisation(self, task: Task) -> Plot | None:
        panels: dict[str, dict[str, list[Point]]] = {label: {} for label in PANELS}
        for setting, run in self._middles(task):
            start_ms = self._starts_ms.get(run.id, clock_start_ms(run, [], None))
            for label, points in panels_of(run, self._store, start_ms).items():
                panels[label][setting.name] = points
                # Not of imports and compilation, nor of what comes when the clock has stopped.
                timed = [point.y for point in points if 0 <= point.x <= clock_sec(run)]
                mean = statistics.fmean(timed or [point.y for point in points])
                self.means.setdefault(label, {}).setdefault(task.title, []).append(mean)
        shown: dict[str, Lines] = {
            label: lines
            for label, lines in panels.items()
            if lines and moved(label, (point.y for points in lines.values() for point in points))
        }
        if not shown:
            return None
        caption = (
            "utilisation and traffic over time, before the clock (left of 0) and on it; at the lower edge a stroke is"
            f" an epoch's end, and a bar its evaluation; {self._said(task)}"
        )
        return Plot("utilisation", caption, png(charts.utilisation(shown, self._evaluated)))

    def cost(self, task: Task) -> Plot | None:
        seconds, dollars = points_of(task, TIME), points_of(task, COST)
        points = {
            name: Point(seconds[name].y, dollars[name].y, dollars[name].error, seconds[name].error)
            for name in dollars
            if name in seconds
        }
        if not points:
            return None
        caption = f"cost against time; error bars are standard errors{shares_of(task)}"
        return Plot("cost", caption, png(charts.cost(points)))

    def mean_utilisation(self) -> Plot | None:
        panels = {
            label: {name: as_point(0.0, Estimate(*mean_and_standard_error(values), len(values))) for name, values in
                    workloads.items()}
            for label, workloads in self.means.items()
            if moved(label, chain.from_iterable(workloads.values()))
        }  # fmt: skip
        if not panels:
            return None
        of = "over the middle runs of each workload's settings"
        caption = f"Mean utilisation on the clock, {of}; error bars are standard errors"
        return Plot("mean-utilisation", caption, png(charts.mean_utilisation(panels)))

    def roofline(self) -> Plot | None:
        panels = roofline_chart.rooflines(self._store, self._workloads)
        if not panels:
            return None
        caption = "Rooflines: ceilings measured on the same hardware; error bars are standard errors, dots are runs"
        caption = ". ".join([caption, *roofline_chart.absent(self._workloads)])
        return Plot(roofline_chart.NAME, caption, png(roofline_chart.draw(panels)))

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
