"""The sources of a report's tables, its own figures and the journals; and how cells are printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracking.analysis.audit.arithmetic import Observations, moments_of, says, tolerance
from tracking.analysis.audit.evidence.evidence import Evidence, Labels
from tracking.analysis.audit.evidence.spacing import OF_TARGETS
from tracking.analysis.audit.evidence.trees import That
from tracking.analysis.audit.journals import JournalFigures

Rows = dict[str, Any]  # by a row's identity, its cells by heading


@dataclass(frozen=True)
class Content:
    """The sources of tables: the report's own figures, and the journals."""

    report: Mapping[str, Any]
    evidence: Evidence

    def figure(self, workload: str, setting: Labels, heading: str) -> Mapping[str, Any]:
        """The report's record of a figure; empty if it has none."""
        place = (workload, dict(setting), heading)
        figures = self.report["figures"]
        return next((each for each in figures if (each["workload"], each["setting"], each["figure"]) == place), {})

    def cell(self, workload: str, setting: Labels, heading: str) -> str:
        """A figure as a table prints it, with its n if that is not the row's."""
        figure = self.figure(workload, setting, heading)
        if not figure:
            return ""
        usual = len(self.evidence.counting(workload, setting))
        if figure["key"] in OF_TARGETS and (n := self.evidence.reached(workload, setting)[1]):
            usual = n + len(self.evidence.stopped(workload, setting))
        return str(figure["text"]) + (f" (n={figure['n']})" if figure["over"] is None and figure["n"] != usual else "")

    def headings(self, workload: str) -> list[str]:
        return list(dict.fromkeys(each["figure"] for each in self.report["figures"] if each["workload"] == workload))


def these(words: set[str]) -> That:
    """Accepts exactly these words, separated by commas, in any order."""
    return That(lambda text: set(filter(None, text.split(", "))) == words, ", ".join(sorted(words)))


def mean_of(sample: Observations, scale: float, key: str) -> That:
    """Accepts the mean of a sample as a cell prints it."""
    numbers = moments_of(sample, scale)
    return That(lambda text: says(sample, scale, text, tolerance(key)), f"n, mean, error, olympic mean {numbers}")


def facts_of(runs: Sequence[JournalFigures], key: str, absent: str = "") -> That:
    return these({str(run.params.get(key, absent)) for run in runs} - {""})
