"""Pictures of runs' histories: for each setting, those of the run with the median time."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from itertools import chain
from operator import itemgetter

from conf.target import Target
from tracking.analysis.compare import Estimate, Setting, Task
from tracking.analysis.report.pictures import charts
from tracking.analysis.report.pictures.drawing import MOST_LINES, Point
from tracking.analysis.report.pictures.plot import Panel, Plot, drawn
from tracking.analysis.report.pictures.plot_data import (
    EVALUATION,
    PANELS,
    as_point,
    clock_sec,
    clock_start_ms,
    errors_of,
    evaluation_spans,
    middle,
    moved,
    panels_of,
    targets_of,
)
from tracking.analysis.results import Run, Runs
from tracking.analysis.statistics import mean_and_standard_error
from tracking.base import quantities

EPOCH, LOSS, ELO = quantities.EPOCH, quantities.TRAIN_LOSS, "gate/elo"
ON_THE_CLOCK = "time since the clock started (s)"


class CurvePlotter:
    """Draws the curves of each workload, then the means of the utilisation that was drawn."""

    def __init__(self, store: Runs) -> None:
        self._store = store
        self._starts_ms: dict[str, float] = {}  # when the clock of a run started, by its id
        # By run id, the seconds of the clock at which each epoch and its evaluation ended.
        self._evaluated: dict[str, list[tuple[float, float]]] = {}
        # By panel and workload, the mean on the clock of each run whose utilisation was drawn.
        self._means: dict[str, dict[str, list[float]]] = {}

    def accuracy(self, task: Task) -> Plot | None:
        """Every target metric over epochs and over time."""
        targets = targets_of(task)
        runs = {setting.name: run for setting, run in _middles(task)}
        lines: dict[tuple[str, str], dict[str, list[Point]]] = {
            (metric, x): {} for metric in targets for x in (EPOCH, ON_THE_CLOCK)
        }
        for name, run in runs.items():
            keys = [f"{EVALUATION}{metric}" for metric in targets]
            history = self._store.history(run, [*keys, EPOCH, LOSS])
            epochs = {at: value for step, time_ms, value in history.get(EPOCH, []) for at in (step, (step, time_ms))}
            start_ms = self._start_ms(run, targets)
            for metric in targets:
                rows = sorted(history.get(f"{EVALUATION}{metric}", []), key=itemgetter(1, 0))  # steps may start over
                lines[metric, EPOCH][name] = [
                    Point(epochs.get((step, time_ms), epochs[step]), value)
                    for step, time_ms, value in rows
                    if step in epochs
                ]
                over_time = [Point((time_ms - start_ms) / 1e3, value) for _, time_ms, value in rows]
                lines[metric, ON_THE_CLOCK][name] = over_time
            trained = [(time_ms - start_ms) / 1e3 for _, time_ms, _ in history.get(LOSS, [])]
            ends = sorted((time_ms - start_ms) / 1e3 for _, time_ms, _ in history.get(keys[0], []))
            self._evaluated[run.id] = evaluation_spans(trained, ends)
        if not any(any(lines[metric, EPOCH].values()) for metric in targets):
            return None
        panels = [
            Panel(x, metric, of_settings, f"{EVALUATION}{metric}", target=targets[metric], runs=_ids(runs))
            for (metric, x), of_settings in lines.items()
        ]
        caption = f"{', '.join(targets)} over epochs and over time; {_caption(task)}"
        return drawn("accuracy", caption, charts.accuracy(panels), panels)

    def elo(self, task: Task) -> Plot | None:
        """MiniGo's Elo over generations. A generation that was played again after an interruption counts once."""
        runs = {setting.name: run for setting, run in _middles(task)}
        by_step = {
            name: {step: value for step, _, value in sorted(self._store.history(run, [ELO]).get(ELO, []))}
            for name, run in runs.items()
        }
        lines = {
            name: [Point(number, value) for number, value in enumerate(values.values(), 1)]
            for name, values in by_step.items()
            if values
        }
        if not lines:
            return None
        panel = Panel("generation", "Elo over the first network", lines, ELO, runs=_ids(runs))
        caption = f"Elo of each generation's network, from its matches against the best one before; {_caption(task)}"
        return drawn("elo", caption, charts.over_generations(panel), [panel])

    def utilisation(self, task: Task) -> Plot | None:
        shown: dict[str, dict[str, list[Point]]] = {label: {} for label in PANELS}
        targets, runs = targets_of(task), {setting.name: run for setting, run in _middles(task)}
        for name, run in runs.items():
            for label, points in panels_of(run, self._store, self._start_ms(run, targets)).items():
                shown[label][name] = points
                # Only while the clock runs: imports and compilation come before, other work after.
                timed = [point.y for point in points if 0 <= point.x <= clock_sec(run)]
                mean = statistics.fmean(timed or [point.y for point in points])
                self._means.setdefault(label, {}).setdefault(task.title, []).append(mean)
        panels = [
            Panel(ON_THE_CLOCK, label, lines, PANELS[label], runs=_ids({name: runs[name] for name in lines}))
            for label, lines in shown.items()
            if lines and moved(label, (point.y for points in lines.values() for point in points))
        ]
        if not panels:
            return None
        caption = (
            "utilisation and traffic over time, before the clock (left of 0) and on it; at the lower edge a stroke is"
            f" where an evaluation begins, and a bar is the evaluation; {_caption(task)}"
        )
        spans = {name: self._evaluated.get(run.id, []) for name, run in runs.items()}
        figure = charts.utilisation({panel.y: panel.lines for panel in panels}, spans)
        ends = {name: [Point(*span) for span in of_run] for name, of_run in spans.items()}
        panels.append(Panel("end of an epoch (s)", "end of its evaluation (s)", ends, runs=_ids(runs)))
        return drawn("utilisation", caption, figure, panels)

    def mean_utilisation(self) -> Plot | None:
        """The mean utilisation of each of several workloads, as bars."""
        shown = {
            label: {name: as_point(0.0, Estimate(*mean_and_standard_error(values), len(values)))
                    for name, values in workloads.items()}
            for label, workloads in self._means.items()
            if moved(label, chain.from_iterable(workloads.values()))
        }  # fmt: skip
        if all(len(means) < 2 for means in shown.values()):  # A single bar compares nothing.
            return None
        of = "over the median run of each setting"
        bars = [point for means in shown.values() for point in means.values()]
        caption = f"Mean utilisation on the clock, {of}{errors_of(bars)}"
        panels = [
            Panel("", label, {name: [point] for name, point in means.items()}, PANELS[label])
            for label, means in shown.items()
        ]
        return drawn("mean-utilisation", caption, charts.mean_utilisation(shown), panels)

    def _start_ms(self, run: Run, targets: Mapping[str, Target | None]) -> float:
        if run.id not in self._starts_ms:
            self._starts_ms[run.id] = clock_start_ms(run, targets, self._store)
        return self._starts_ms[run.id]


def _ids(runs: Mapping[str, Run]) -> dict[str, str]:
    return {name: run.id for name, run in runs.items()}


def _middles(task: Task) -> list[tuple[Setting, Run]]:
    with_runs = [setting for setting in task.settings if setting.runs][:MOST_LINES]
    return [(setting, middle(setting.runs)) for setting in with_runs]


def _caption(task: Task) -> str:
    num_settings = sum(bool(setting.runs) for setting in task.settings)
    of = f"{MOST_LINES} of {num_settings} settings" if num_settings > MOST_LINES else "each setting"
    return f"the median run of {of} (of two, the faster)"
