"""A picture of a report, with the data that it was drawn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from conf.target import Target
from tracking.analysis.report.pictures.drawing import Lines, Point, png

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Panel:
    """A panel: lines over `x`, or bars, which are lines of one point.

    `key` is the metric of the values, or a regular expression for several metrics. `ticks` names the places 0, 1, ...
    on the x axis. `runs` maps each line of a single run to the run's id.
    """

    x: str
    y: str
    lines: Lines
    key: str = ""
    title: str = ""
    target: Target | None = None
    ticks: Sequence[str] = ()
    runs: Mapping[str, str] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """The panel for JSON, without empty fields."""
        about = {"title": self.title, "key": self.key, "target": self.target, "ticks": list(self.ticks)}
        about = {name: value for name, value in about.items() if value not in ("", None, [])}
        lines = [{"name": name} | self._of_run(name) | _columns(points) for name, points in self.lines.items()]
        return {"x": self.x, "y": self.y, **about, "lines": lines}

    def _of_run(self, name: str) -> dict[str, str]:
        return {"run": self.runs[name]} if name in self.runs else {}


@dataclass(frozen=True)
class Plot:
    """A picture. `panels` holds its data, `about` its workload; "" if it shows several."""

    name: str  # its file's name
    caption: str
    png: bytes
    panels: Sequence[Panel] = ()
    about: str = ""

    def plain(self) -> dict[str, Any]:
        """The picture's data for JSON."""
        panels = [panel.plain() for panel in self.panels]
        return {"name": self.name, "caption": self.caption, "workload": self.about, "panels": panels}


def drawn(name: str, caption: str, figure: Figure, panels: Sequence[Panel]) -> Plot:
    return Plot(name, caption, png(figure), panels)


def _columns(points: Sequence[Point]) -> dict[str, list[Any]]:
    """A list for each field of the points, without fields that have their default in all points."""
    columns: dict[str, list[Any]] = {"x": [point.x for point in points], "y": [point.y for point in points]}
    for name in ("error", "x_error", "at_least", "at_most", "x_at_least"):
        values = [getattr(point, name) for point in points]
        columns |= {name: values} if any(values) else {}
    return columns
