"""The expected data of pictures of single runs: for each setting the median run, over its own clock."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from tracking.analysis.audit.evidence import PANELS, UNCHECKED, Evidence, That, name_of
from tracking.analysis.audit.journals import JournalFigures
from tracking.base import quantities

EPOCH, CLOCK = "epoch", "time since the clock started (s)"
ENDS = ("end of an epoch (s)", "end of its evaluation (s)")
TIME, RATE = quantities.TIME_TO_ACCURACY_SEC, quantities.THROUGHPUT_SAMPLES_PER_SEC
SPENT = (quantities.TIME_TRAIN_SEC, quantities.TIME_EVAL_SEC, quantities.TIME_CHECKPOINT_SEC)
MOST_LINES = 8
NEAR_SEC = 2e-3  # older runs record the start of their clock to a millisecond
Picture = Mapping[str, Any]


def identity(panel: Mapping[str, Any]) -> str:
    return f"{panel['y']} over {panel['x']}" + (f", {panel['title']}" if panel.get("title") else "")


def accuracy(evidence: Evidence, picture: Picture) -> dict[str, Any]:
    """Every target metric over epochs and over time; without a target, the picture's own metric."""
    runs = _middles(evidence, picture)
    targets: dict[str, str | None] = dict(next(iter(runs.values()))[0].targets)
    expected = {}
    for metric in targets or {panel["y"]: None for panel in picture["panels"]}:
        key = f"{quantities.EVAL}{metric}"
        target = targets.get(metric)
        for x in (EPOCH, CLOCK):
            lines = {
                name: _choice([_evaluated(run, key, x) for run in candidates], candidates)
                for name, candidates in runs.items()
            }
            panel: dict[str, Any] = {"key": key, "lines": lines}
            panel |= {} if target is None else {"target": target if target.startswith("<=") else float(target)}
            expected[identity({"x": x, "y": metric})] = panel
    return expected


def elo(evidence: Evidence, picture: Picture) -> dict[str, Any]:
    """Elo over generations: the last value of each step that has one."""
    key, lines = "gate/elo", {}
    for name, candidates in _middles(evidence, picture).items():
        if with_values := [run for run in candidates if _timed(run, key)]:
            newest = [{step: value for _, step, value in sorted(_timed(run, key))} for run in with_values]
            points = [
                [(float(place), values[step]) for place, step in enumerate(sorted(values), 1)] for values in newest
            ]
            lines[name] = _choice(points, with_values)
    return {identity({"x": "generation", "y": "Elo over the first network"}): {"key": key, "lines": lines}}


def utilisation(evidence: Evidence, picture: Picture) -> dict[str, Any]:
    """A panel for each quantity that moved, with a line for each run that has it; and the spans of evaluations."""
    runs, expected = _middles(evidence, picture), {}
    for label, key in PANELS.items():
        shown = {name: candidates for name, candidates in runs.items() if any(_values(run, key) for run in candidates)}
        if any(_moved(label, run, key) for candidates in shown.values() for run in candidates):
            lines = {
                name: _choice([_points(run, key, _combine(label)) for run in candidates], candidates)
                for name, candidates in shown.items()
            }
            expected[identity({"x": CLOCK, "y": label})] = {"key": key, "lines": lines}
    ends = {
        name: _choice([_evaluations(run) for run in candidates], candidates, NEAR_SEC)
        for name, candidates in runs.items()
    }
    return expected | {identity({"x": ENDS[0], "y": ENDS[1]}): {"lines": ends}}


def _combine(label: str) -> Callable[[list[float]], float]:
    """How a panel combines several GPUs: percentages are averaged, traffic is summed."""
    return fmean if "%" in label else math.fsum


def _moved(label: str, run: JournalFigures, key: str) -> bool:
    return "%" in label or any(any(values) for _, values in _values(run, key).values())


def mean_utilisation(evidence: Evidence, picture: Picture) -> dict[str, Any]:
    """The mean over the settings' median runs, for each workload."""
    expected: dict[str, Any] = {}
    for label, key in PANELS.items():
        lines, moved = {}, False
        for workload in evidence.workloads():
            middles = _middles(evidence, {"workload": workload, "panels": []}).values()
            with_values = [[run for run in candidates if _values(run, key)] for candidates in middles]
            of_settings = [[_on_the_clock(run, key, _combine(label)) for run in runs] for runs in with_values if runs]
            moved = moved or "%" in label or any(map(any, of_settings))
            if of_settings:
                lines[workload] = _means_of(of_settings)
        if lines and moved:
            expected[identity({"x": "", "y": label})] = {"key": key, "lines": lines}
    return expected


def _means_of(of_settings: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Accepts the mean and its error; if a setting has several median runs, a mean with any of them."""
    chosen = [min(each) for each in of_settings], [max(each) for each in of_settings]
    means = [fmean(values) for values in chosen]
    errors = [stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0 for values in chosen]
    if all(len({*each}) == 1 for each in of_settings):
        return {"x": numbers([0.0]), "y": numbers(means[:1])} | ({"error": numbers(errors[:1])} if errors[0] else {})
    return {"x": numbers([0.0]), "y": between(*means), "error": UNCHECKED}


def _middles(evidence: Evidence, picture: Picture) -> dict[str, list[JournalFigures]]:
    """The runs that may represent each setting: those with the median time, else rate (the faster of two)."""
    workload = picture["workload"]
    middles = {}
    for setting in evidence.settings(workload):
        counting = [*evidence.counting(workload, setting).values()]
        key = TIME if any(run.value(TIME) is not None for run in counting) else RATE
        values = (run.value(key) for run in counting)
        known = sorted((value for value in values if value is not None), reverse=key == RATE)
        middle = known[(len(known) - 1) // 2] if known else None
        at_middle = [run for run in counting if _same(run.value(key), middle)]
        claimed = {line.get("run") for panel in picture["panels"] for line in panel["lines"]}
        if counting:
            middles[name_of(setting)] = [run for run in at_middle if run.ids & claimed] or at_middle
    return first(middles)


def first(lines: Mapping[str, Any], most: int = MOST_LINES) -> dict[str, Any]:
    """The first `most` lines."""
    return dict([*lines.items()][:most])


def _same(value: float | None, middle: float | None) -> bool:
    if value is None or middle is None:
        return value is middle
    return math.isclose(value, middle, rel_tol=1e-4)  # Rates are journaled rounded.


def _choice(
    lines: Sequence[list[tuple[float, float]]], candidates: Sequence[JournalFigures], off: float = 0.0
) -> dict[str, That] | That:
    """Accepts the line of the median run; if there are several, of any of them."""
    expected = [
        {"run": _is(run), "x": numbers([x for x, _ in points], NEAR_SEC), "y": numbers([y for _, y in points], off)}
        for run, points in zip(candidates, lines, strict=True)
    ]
    if len(expected) == 1:
        return expected[0]

    def is_one(claimed: Any) -> bool:
        return any(
            each.keys() == claimed.keys() and all(each[key].holds(claimed[key]) for key in each) for each in expected
        )

    return That(is_one, f"the line of one of {', '.join(run.name for run in candidates)}")


def _is(run: JournalFigures) -> That:
    return That(lambda claimed: claimed in run.ids, f"the id of {run.name}")


def _evaluated(run: JournalFigures, key: str, x: str) -> list[tuple[float, float]]:
    """Every value of a metric in order of time, each once; a program may have several at a step."""
    values = sorted({(time_ms, step, value) for time_ms, step, value in _timed(run, key)})
    if x == CLOCK:
        return [((time_ms - _start_ms(run)) / 1e3, value) for time_ms, _, value in values]
    epochs = sorted(_timed(run, quantities.EPOCH))
    evaluated = {(time_ms, step): epoch for time_ms, step, epoch in epochs}
    last = {step: epoch for _, step, epoch in epochs}
    return [(evaluated.get((time_ms, step), last[step]), value) for time_ms, step, value in values if step in last]


def _timed(run: JournalFigures, key: str) -> list[tuple[int, int, float]]:
    return [(row["time_ms"], row["step"], row["values"][key]) for row in _logged(run) if key in row["values"]]


def _points(run: JournalFigures, key: str, combine: Callable[[list[float]], float]) -> list[tuple[float, float]]:
    """The points of a panel: at each step, the values of all metrics that match `key`, combined."""
    values, start_ms = _values(run, key), _start_ms(run)
    return [((time_ms - start_ms) / 1e3, combine(here)) for _, (time_ms, here) in sorted(values.items())]


def _values(run: JournalFigures, key: str) -> dict[int, tuple[int, list[float]]]:
    """By step, the time and the values of the metrics that match `key`."""
    by_step: dict[int, tuple[int, dict[str, float]]] = {}
    for row in _logged(run):
        if here := {name: value for name, value in row["values"].items() if re.fullmatch(key, name)}:
            by_step[row["step"]] = (row["time_ms"], by_step.get(row["step"], (0, {}))[1] | here)
    return {step: (time_ms, [*here.values()]) for step, (time_ms, here) in by_step.items()}


def _logged(run: JournalFigures) -> Iterator[Mapping[str, Any]]:
    return (row for row in run.rows if row["kind"] == "metrics" and row.get("step") is not None)


def _start_ms(run: JournalFigures) -> int:
    start: int = next(row["time_ms"] for row in run.rows if row.get("key") == "run_start")
    return start


def _evaluations(run: JournalFigures) -> list[tuple[float, float]]:
    """The span of each evaluation of the first target metric: from the end of the steps before it to its own end."""
    start_ms = _start_ms(run)
    logged = [*_logged(run)]
    keys = [f"{quantities.EVAL}{name}" for name in run.targets]
    keys = keys or sorted({key for row in logged for key in row["values"] if key.startswith(quantities.EVAL)})
    trained = [(row["time_ms"] - start_ms) / 1e3 for row in logged if quantities.TRAIN_LOSS in row["values"]]
    ends = [time for time, _ in _evaluated(run, keys[0], CLOCK)]
    return [(max((time for time in trained if time <= end), default=end), end) for end in ends]


def _on_the_clock(run: JournalFigures, key: str, combine: Callable[[list[float]], float]) -> float:
    """The mean of the samples while the clock ran, else of all samples."""
    spent = [run.journaled(key) for key in SPENT]
    end = math.inf if spent[0] is None else math.fsum(part or 0.0 for part in spent)
    points = _points(run, key, combine)
    return fmean([y for x, y in points if 0 <= x <= end] or [y for _, y in points])


def numbers(expected: Sequence[float], off: float = 0.0) -> That:
    """Accepts these numbers, and null for those that are not finite, which JSON lacks."""

    def same(number: Any, other: float) -> bool:
        if number is None or not math.isfinite(other):
            return number is None and not math.isfinite(other)
        return not isinstance(number, bool | str) and math.isclose(number, other, rel_tol=1e-9, abs_tol=off)

    def holds(claimed: Any) -> bool:
        return len(claimed) == len(expected) and all(map(same, claimed, expected))

    return That(holds, str(expected))


def between(low: float, high: float) -> That:
    return That(lambda claimed: len(claimed) == 1 and low <= claimed[0] <= high, f"between {low} and {high}")
