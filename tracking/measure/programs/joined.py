"""Metrics of one evaluation that a log says in lines of their own, as Stable Diffusion's FID and CLIP, put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conf.target import Target
from tracking.measure.programs import foreign
from tracking.measure.programs.mlperf_lines import Entry

PLACES = ("samples_count", "step_num", "epoch_num")  # of what model an evaluation is


def place(entry: Entry) -> Any:
    """The number of the model that was evaluated, in whatever unit; None where the log says none."""
    return next((entry.metadata[key] for key in PLACES if entry.metadata.get(key) is not None), None)


def metric_of(entry: Entry) -> str:
    """What the log calls the metric of an evaluation; empty where it does not say it."""
    return foreign.text(entry.metadata.get("metric"))


class Joined:
    """Waits for the others of the targets' metrics of a model."""

    def __init__(self, targets: Mapping[str, Target]) -> None:
        self._targets = targets.keys()
        self._said: dict[str, dict[str, float]] = {}

    def whole(self, entry: Entry, metrics: Mapping[str, float]) -> dict[str, float]:
        """The evaluation's metrics, once all are said that the targets ask for; empty until then."""
        if metric_of(entry) not in self._targets or not metrics:
            return dict(metrics)
        said = self._said.setdefault(str(place(entry)), {})
        said |= metrics
        return self._said.pop(str(place(entry))) if self._targets <= said.keys() else {}
