"""The answer of a search as JSON: the same in search.json, in the event `answer`, and in a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tracking.analysis.search import Answer, Figure, key_of
from tracking.jobs.search.answer_words import UNITS
from tracking.jobs.search.fronts import Point, front_of
from tracking.jobs.search.setting_means import KEYS, Means, times
from tracking.request.search_options import Budget


def record(
    answers: Sequence[Answer], objectives: Sequence[str], budget: Budget, means: Means, drawn: Sequence[str],
    points: Sequence[Point],
) -> dict[str, Any]:  # fmt: skip
    """The answer by the first objective, and under `second` by the second one.

    `front` holds the settings among `points` that no other one beats in both `drawn` objectives.
    """
    rows = [_row(*each, means) for each in zip(answers, objectives, strict=True)]
    front = [
        {"setting": point.trial.setting, drawn[0]: point.first, drawn[1]: point.second} for point in front_of(points)
    ]
    spent = answers[0].explore_cost + answers[0].decide_cost
    whole = {"unit": budget.unit, "asked": budget.amount, "spent": spent}
    return {**rows[0], "second": rows[1] if len(rows) > 1 else None, "front": front, "budget": whole}


def _row(answer: Answer, objective: str, means: Means) -> dict[str, Any]:
    """The answer by one objective. Groups are a list, since their values may be numbers."""
    content = dataclasses.asdict(answer)
    ratios = content.pop("ratios") or {}
    del content["best_by_group"]
    content["figures"] = [_figure(figure, means) for figure in answer.figures]
    named = next((figure for figure in answer.figures if figure.setting == answer.named), None)
    groups = []
    for group, figure in (answer.best_by_group or {}).items():
        both = None if named is None or figure is named else (named, figure)
        groups.append({
            "group": group,
            "best": _figure(figure, means),
            "ratio": ratios.get(group),
            "times_the_cost": both and times(means, *both, "cost_usd"),
            "times_the_energy": both and times(means, *both, "energy_joules"),
        })  # fmt: skip
    about = {"objective": objective, "unit": UNITS[objective]}
    return {**about, "value": named and _figure(named, means), **content, "groups": groups}


def _figure(figure: Figure, means: Means) -> dict[str, Any]:
    """A finalist's figure with the means beside it."""
    beside: Mapping[str, float] = means.get(key_of(figure.setting), {})
    return {**dataclasses.asdict(figure), **{name: beside.get(name) for name in KEYS}}
