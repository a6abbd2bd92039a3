"""The expected data of the picture of ranked settings: means by the report's metric, and single runs."""

from __future__ import annotations

from typing import Any

from tracking.analysis.audit.arithmetic import close, moments_of, tolerance
from tracking.analysis.audit.curves import Picture, identity
from tracking.analysis.audit.evidence import Evidence, That, name_of
from tracking.analysis.audit.mean_pictures import line
from tracking.base import quantities

MOST_BARS = 24


def settings(evidence: Evidence, picture: Picture) -> dict[str, Any]:
    workload, metric = picture["workload"], evidence.metric
    means: dict[str, Any] = {}
    runs: dict[str, Any] = {}
    for setting in evidence.settings(workload):
        sample = evidence.sample(workload, setting, metric)
        if moments := moments_of(sample):
            means[name_of(setting)] = line([(0.0, moments[1], moments[2] or 0.0, sample.sign)], metric)
            runs[name_of(setting)] = _dots(sorted(sample.numbers), tolerance(metric))
    facts = quantities.quantity(metric)
    label = facts.heading if facts.heading and facts.scale == 1 else metric
    # If there are many settings, only the first ones of the table of ranked settings are drawn.
    panels = {panel.get("title", ""): panel for panel in picture["panels"]}
    expected = {}
    for title, lines in (("", means), ("runs", runs)):
        drawn = {each["name"] for each in panels[title]["lines"]}
        shown = {name: each for name, each in lines.items() if name in drawn or len(lines) <= MOST_BARS}
        expected[identity({"x": "", "y": label, "title": title})] = {"key": metric, "lines": shown}
    return expected


def _dots(values: list[float], near: float) -> dict[str, That]:
    def holds(claimed: Any) -> bool:
        pairs = zip(sorted(claimed), values, strict=True)
        return all(not isinstance(dot, bool) and close(dot, value, near, 0.0) for dot, value in pairs)

    return {"x": That(lambda claimed: claimed == [0.0] * len(values), "zeros"), "y": That(holds, str(values))}
