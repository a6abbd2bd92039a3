"""Make the pictures of a report: means of settings here, histories of single runs in `curve_plots`.

A method takes a task (a model on a dataset, to a target) and returns a picture with its data, or None without data.
`charts` draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from tracking.analysis.compare import Best, Task, estimate, estimates, is_stack, speed_up
from tracking.analysis.report.pictures import charts, roofline_chart, stack_chart
from tracking.analysis.report.pictures.batch_chart import batches
from tracking.analysis.report.pictures.curve_plots import ON_THE_CLOCK, CurvePlotter
from tracking.analysis.report.pictures.drawing import MOST_BARS, MOST_LINES, Point
from tracking.analysis.report.pictures.plot import Panel, Plot, drawn
from tracking.analysis.report.pictures.plot_data import (
    COST,
    KWH,
    RATE,
    TIME,
    as_point,
    as_version,
    bounds_of,
    by_stack,
    errors_of,
    longest,
    means_of,
    points_of,
    share_of,
    shares_of,
)
from tracking.analysis.report.pictures.ranking_chart import ranking
from tracking.analysis.report.pictures.workload_charts import busy_over_devices, times_of_all
from tracking.analysis.results import Runs
from tracking.analysis.statistics import reached_by
from tracking.base import quantities

DEVICE_COUNT = "devices (number)"


class Plotter:
    """Draws the pictures of a report's workloads.

    `about_stacks` holds the report's sentences on stacks, by workload title; `bests` the best setting of each workload
    by `metric`, in order.
    """

    def __init__(
        self, store: Runs, tasks: Sequence[Task], progress: Callable[[], None],
        about_stacks: Mapping[str, Sequence[str]], metric: str, bests: Sequence[Best | None],
    ) -> None:  # fmt: skip
        self._store = store
        self._about_stacks = about_stacks
        self._metric, self._bests = metric, bests
        self._workloads = tasks
        self._progress = progress
        self._curves = CurvePlotter(store)

    def plots(self) -> Iterator[Plot]:
        """Every picture that the runs have data for. Of several workloads, the joint pictures come first."""
        of_each = list(self._of_each())  # First: the means are taken from the curves drawn here.
        over_all = list(self._over_all())
        yield from (over_all + of_each if len(self._workloads) > 1 else of_each + over_all)

    def _over_all(self) -> Iterator[Plot]:
        """The pictures that show all workloads."""
        busy = busy_over_devices(self._workloads)
        means = None if busy else self._curves.mean_utilisation()  # A mean over 1 and 8 devices describes neither.
        for plot in (times_of_all(self._workloads), busy, means, self.roofline()):
            if plot:
                yield plot

    def _of_each(self) -> Iterator[Plot]:
        """The pictures of each workload."""
        for number, (task, chosen) in enumerate(zip(self._workloads, self._bests, strict=True), 1):
            of_a_workload = (
                partial(ranking, metric=self._metric, chosen=chosen),
                self._curves.accuracy,
                self._curves.elo,
                self.reached,
                self.scaling,
                batches,
                self.throughput,
                self.stacks,
                self._curves.utilisation,
                self.cost,
                self.energy,
            )
            for draw in of_a_workload:
                plot = draw(task)
                self._progress()
                if plot:
                    name, caption = f"{number}-{plot.name}", f"{task.title}: {plot.caption}"
                    yield replace(plot, name=name, caption=caption, about=task.title)

    def reached(self, task: Task) -> Plot | None:
        """The share of runs at the target over time, with a line for each setting."""
        measured = [setting for setting in task.settings if setting.measured(TIME).n][:MOST_LINES]
        if not any(setting.measured(TIME).reached for setting in measured):
            return None
        steps: dict[str, list[Point]] = {}
        crosses: dict[str, list[Point]] = {}
        for setting in measured:
            times, name = setting.measured(TIME), f"{setting.name}: {share_of(setting)}"
            steps[name] = [Point(*step) for step in reached_by(times)]
            crosses[name] = [
                Point(sec, max((point.y for point in steps[name] if point.x <= sec), default=0.0))
                for sec in times.censored
            ]
        caption = "share of runs that have reached the target, by time (Kaplan-Meier estimate)"
        share = "share that has reached the target (0 to 1)"
        panels = [Panel(ON_THE_CLOCK, share, steps, TIME), Panel(ON_THE_CLOCK, share, crosses, TIME, "given up")]
        return drawn("reached", caption, charts.reached(steps, crosses), panels)

    def scaling(self, task: Task) -> Plot | None:
        """Time to accuracy, or else the time of an epoch, over devices; and the speed-up beside it."""
        key, unit = TIME, "time to accuracy (s)"
        if not any(setting.values(TIME) for setting in task.settings):
            key, unit = (quantities.TIME_EPOCH_SEC, "time of an epoch (s)")
        seconds: dict[str, list[Point]] = {}
        speeds: dict[str, list[Point]] = {}
        for setting in task.settings:
            base, mean = estimates.base_of(setting, task.settings), estimate(setting.measured(key))
            if base is None or mean is None or setting.devices is None:
                continue
            name = estimates.line_name(setting, task.settings)
            seconds.setdefault(name or task.title, []).append(as_point(setting.devices, mean))
            if ratio := speed_up(setting, base, key):
                speeds.setdefault(name or task.title, []).append(as_point(setting.devices, ratio[0]))
        lines, ups = (longest(points) for points in (seconds, speeds))
        if not lines:
            return None
        caption = f"{unit.rpartition(' (')[0]} and speed-up over devices; error bars are standard errors"
        caption += bounds_of([*lines.values(), *ups.values()]) + (shares_of(task) if key == TIME else "")
        panels = [Panel(DEVICE_COUNT, unit, lines, key), Panel(DEVICE_COUNT, "speed-up", ups, key)]
        return drawn("scaling", caption, charts.scaling(lines, ups, unit), panels)

    def throughput(self, task: Task) -> Plot | None:
        """The rate of each of several settings, as bars."""
        values = points_of(task, RATE)
        if len(values) < 2:  # A single bar compares nothing.
            return None
        some = f" of the first {MOST_BARS} settings" if len(values) > MOST_BARS else ""
        caption, label = f"steady-state rate{some}{errors_of(values.values())}", "throughput (samples/s)"
        panel = Panel("", label, {name: [point] for name, point in list(values.items())[:MOST_BARS]}, RATE)
        return drawn("throughput", caption, charts.bars(values, label), [panel])

    def stacks(self, task: Task) -> Plot | None:
        """Time over drivers, a curve for each stack and a panel for each GPU; None for one stack or too many curves."""
        key = TIME if any(setting.values(TIME) for setting in task.settings) else quantities.TIME_TRAIN_SEC
        times = by_stack(task, key)
        curves = {name for panel in times.values() for name in panel}
        by_driver = [drivers for panel in times.values() for drivers in panel.values()]
        drivers = sorted({driver for points in by_driver for driver in points}, key=as_version)
        has_stack_axis = any(is_stack(axis) for setting in task.settings for axis in setting.labels)
        along = any(len(points) > 1 for points in by_driver)  # a curve, and not single points
        if max(len(drivers), len(curves)) < 2 or not (has_stack_axis or along) or len(curves) > MOST_LINES:
            return None
        panels = {
            gpu: {name: means_of(panel[name]) for name in sorted(panel, key=as_version)}
            for gpu, panel in sorted(times.items())
        }
        label = "time to accuracy (s)" if key == TIME else "training time (s)"
        caption = f"{label.rpartition(' (')[0]} over drivers, on axes that need not begin at 0; error bars are standard"
        caption += " errors"
        bounds = bounds_of(points.values() for curves in panels.values() for points in curves.values())
        caption += bounds + (shares_of(task) if bounds else "")
        words = " ".join(self._about_stacks.get(task.title, []))
        data = [
            Panel(stack_chart.DRIVERS, label, stack_chart.over_drivers(curves, drivers), key, gpu, ticks=drivers)
            for gpu, curves in panels.items()
        ]
        return drawn("stacks", f"{caption}. {words}".strip(), stack_chart.stacks(panels, drivers, label), data)

    def cost(self, task: Task) -> Plot | None:
        """Cost against time to accuracy, a point for each setting."""
        return against_time(task, "cost", COST, "cost to accuracy (USD)")

    def energy(self, task: Task) -> Plot | None:
        """Energy against time to accuracy, a point for each setting."""
        return against_time(task, "energy", KWH, "energy to accuracy (kWh)")

    def roofline(self) -> Plot | None:
        """The roofline of each kind of GPU, with the runs under it; one picture of all workloads."""
        by_gpu = roofline_chart.rooflines(self._store, self._workloads)
        if not by_gpu:
            return None
        caption = "Rooflines: ceilings measured on the same hardware; error bars are standard errors, dots are runs"
        caption = ". ".join([caption, *roofline_chart.absent(self._workloads)])
        panels = [panel for gpu, roofline in by_gpu.items() for panel in roofline_chart.data(gpu, roofline)]
        return drawn(roofline_chart.NAME, caption, roofline_chart.draw(by_gpu), panels)


def against_time(task: Task, title: str, key: str, label: str) -> Plot | None:
    """The figure `key` to accuracy against time to accuracy, a point for each setting; None without any."""
    seconds, amounts = points_of(task, TIME), points_of(task, key)
    points = {
        name: replace(amounts[name], x=seconds[name].y, x_error=seconds[name].error, x_at_least=seconds[name].at_least)
        for name in amounts
        if name in seconds
    }
    if not points:
        return None
    caption = f"{title} against time; error bars are standard errors{bounds_of([points.values()])}"
    caption += "; it is not on the Pareto front" if any(point.bound for point in points.values()) else ""
    caption += shares_of(task)
    panel = Panel("time to accuracy (s)", label, {name: [at] for name, at in points.items()})
    return drawn(title, caption, charts.front(points, label), [panel])
