"""The parts of a report for JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tracking.analysis.compare import Comparison, Factors, Setting, Task, factors
from tracking.analysis.report import verdicts
from tracking.analysis.report.setting_tables import ReportedFigure
from tracking.analysis.results import Run, Table
from tracking.store.mirror import UID_TAG


def table(table: Table) -> dict[str, Any]:
    about = {"title": table.title, "kind": table.kind, "about": table.about, "note": table.note}
    return about | {"columns": list(table.columns), "rows": table.text()}


def figure(figure: ReportedFigure) -> dict[str, Any]:
    estimate = figure.estimate
    return {
        "workload": figure.task,
        "setting": dict(figure.setting),
        "figure": figure.heading,
        "key": figure.key,
        "n": estimate.n,
        "mean": estimate.mean,
        "bound": estimate.bound,
        "standard_error": estimate.error,
        "olympic_mean": estimate.olympic,
        "text": estimate.text(),
        "runs": list(figure.runs),
        "over": None if figure.base is None else dict(figure.base),
    }


def share(task: str, setting: Setting) -> dict[str, Any]:
    share = setting.reached
    numbers = {"num_reached": share.reached, "n": share.n, "low": share.low, "high": share.high} if share else {}
    return {"workload": task, "setting": dict(setting.labels), **numbers}


def comparisons(pairs: Sequence[tuple[str, Comparison]], tasks: Sequence[Task], metric: str) -> list[dict[str, Any]]:
    """The records of all pairs of settings; `pairs` holds each with the title of its workload."""
    num_tests = Counter(title for title, pair in pairs if pair.p is not None)
    parts: dict[tuple[str, str, str], Factors] = {}
    for task in tasks:
        own = [pair for title, pair in pairs if title == task.title]
        for each in factors(own, metric):
            parts[task.title, each.pair.better.name, each.pair.worse.name] = each
    return [
        verdicts.comparison(title, metric, pair, num_tests[title])
        | {"parts": verdicts.parts(parts.get((title, pair.better.name, pair.worse.name)))}
        for title, pair in pairs
    ]


def run(run: Run, task: str) -> dict[str, Any]:
    return run_id(run) | {"workload": task}


def run_id(run: Run) -> dict[str, Any]:
    return {"id": run.id, "uid": run.tags.get(UID_TAG), "name": run.name}
