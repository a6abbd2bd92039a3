"""The data beside a report's pictures: curves against the journals, and means against the report's figures."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from tracking.analysis.audit.evidence import Evidence
from tracking.analysis.audit.journals import JournalFigures
from tracking.analysis.audit.trees import AuditResult, That, compare, name_of

CURVES = ("accuracy", "utilisation")
TIME, RATE = "time to accuracy (s)", "samples/s"
NEAR_MS = 2.0  # a run of an older version tells its clock's start to a millisecond
Line = dict[str, That]


def audit_pictures(folder: Path, report: Mapping[str, Any], evidence: Evidence, tally: AuditResult) -> None:
    """Compare each report-<name>.json of curves, of rates and of costs; of the others a report's page says they are
    not checked."""
    for path in sorted(folder.glob("report-*.json")):
        try:
            picture = json.loads(path.read_text(encoding="utf-8"))
            kind = re.sub(r"report-\d+-", "", path.stem)
            if kind in CURVES:
                _curves(path.name, picture, evidence, tally)
            elif kind in MEANS:
                (panel,) = picture["panels"]
                lines = {line["name"]: {**line} for line in panel["lines"]}
                compare(tally, path.name, lines, MEANS[kind](report, picture["workload"]))
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            tally.note(False, f"{path.name}: it does not hold a picture's data ({type(error).__name__}: {error})")


def _curves(name: str, picture: Mapping[str, Any], evidence: Evidence, tally: AuditResult) -> None:
    """Each line is of one run of the setting that it is named after, from the start of its clock on."""
    workload = picture["workload"]
    settings = {name_of(setting): setting for setting in evidence.settings(workload)}
    for panel in (panel for panel in picture["panels"] if "key" in panel):
        for line in panel["lines"]:
            where = f"{name}: {panel['y']} over {panel['x']}: {line['name']}"
            setting = settings.get(line["name"])
            counting = evidence.counting(workload, setting) if setting is not None else {}
            run = counting.get(evidence.uid_of(line["run"]) or "")
            tally.note(run is not None, f"{where}: {line['run']} is no counted run of the setting")
            if run is not None:
                compare(tally, where, {axis: line[axis] for axis in "xy"}, _points(run, panel))


def _points(run: JournalFigures, panel: Mapping[str, Any]) -> Line:
    """What a curve should be: by step, the values of all metrics of the panel's key together."""
    epochs = {row["step"]: row["values"]["epoch"] for row in run.rows if "epoch" in row["values"] and _logged(row)}
    start_ms = next(row["time_ms"] for row in run.rows if row.get("key") == "run_start")
    values: dict[int, dict[str, float]] = {}
    times: dict[int, float] = {}
    for row in filter(_logged, run.rows):
        shown = {key: value for key, value in row["values"].items() if re.fullmatch(panel["key"], key)}
        if shown:
            values.setdefault(row["step"], {}).update(shown)
            times[row["step"]] = (row["time_ms"] - start_ms) / 1e3
    over_epochs = panel["x"] == "epoch"
    steps = [step for step in sorted(values) if not over_epochs or step in epochs]
    combine: Callable[[list[float]], float] = fmean if "%" in panel["y"] else math.fsum
    return {
        "x": _numbers([epochs[step] if over_epochs else times[step] for step in steps], NEAR_MS / 1e3),
        "y": _numbers([combine([*values[step].values()]) for step in steps]),
    }


def _logged(row: Mapping[str, Any]) -> bool:
    kind: str = row["kind"]
    return kind == "metrics"


def _numbers(expected: list[float], off: float = 0.0) -> That:
    def holds(claimed: Any) -> bool:
        return len(claimed) == len(expected) and all(
            math.isclose(number, other, rel_tol=1e-9, abs_tol=off)
            for number, other in zip(claimed, expected, strict=True)
        )

    return That(holds, str(expected))


def _rates(report: Mapping[str, Any], workload: str) -> dict[str, Any]:
    """The rate of each setting, with its error where any has one."""
    return {name: _line(name, [0.0], [figure]) for name, figure in _of(report, workload, RATE).items()}


def _costs(report: Mapping[str, Any], workload: str) -> dict[str, Any]:
    """The cost of each setting over its time."""
    costs, times = (_of(report, workload, heading) for heading in ("cost to accuracy (USD)", TIME))
    lines = {name: _line(name, [times[name]["mean"]], [costs[name]]) for name in costs if name in times}
    for name, line in lines.items():
        line.pop("at_least", None)
        if times[name]["standard_error"]:
            line["x_error"] = _numbers([times[name]["standard_error"]])
    return lines


def _of(report: Mapping[str, Any], workload: str, heading: str) -> dict[str, Mapping[str, Any]]:
    return {
        name_of(figure["setting"]): figure
        for figure in report["figures"]
        if (figure["workload"], figure["figure"]) == (workload, heading)
    }


def _line(name: str, x: list[float], figures: list[Mapping[str, Any]]) -> dict[str, Any]:
    errors = [figure["standard_error"] or 0.0 for figure in figures]
    line: dict[str, Any] = {"name": name, "x": _numbers(x), "y": _numbers([figure["mean"] for figure in figures])}
    line |= {"error": _numbers(errors)} if any(errors) else {}
    bounds = [figure["bound"] == "≥" for figure in figures]
    return line | ({"at_least": bounds} if any(bounds) else {})


MEANS = {"throughput": _rates, "cost": _costs}
