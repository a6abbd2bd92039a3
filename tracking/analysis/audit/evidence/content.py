"""What a report's tables are made of: its own figures, and the journals; and how their cells are printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracking.analysis.audit.arithmetic import Observations, moments_of, says, tolerance
from tracking.analysis.audit.evidence.evidence import OF_TARGETS, Evidence, Labels
from tracking.analysis.audit.evidence.trees import That
from tracking.analysis.audit.journals import JournalFigures

Rows = dict[str, Any]  # by what tells a row apart, its cells by heading


@dataclass(frozen=True)
class Content:
    """What tables are made of: the report's own figures, and the journals."""

    report: Mapping[str, Any]
    evidence: Evidence

    def figure(self, workload: str, setting: Labels, heading: str) -> Mapping[str, Any]:
        """Empty where the report has no such figure."""
        which = (workload, dict(setting), heading)
        figures = self.report["figures"]
        return next((each for each in figures if (each["workload"], each["setting"], each["figure"]) == which), {})

    def cell(self, workload: str, setting: Labels, heading: str) -> str:
        """How a figure is printed in a table: with its n where that is not the row's."""
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
    """Exactly these words with commas between them, in any order."""
    return That(lambda text: set(filter(None, text.split(", "))) == words, ", ".join(sorted(words)))


def mean_of(sample: Observations, scale: float, key: str) -> That:
    """The mean of a sample as a cell prints it."""
    numbers = moments_of(sample, scale)
    return That(lambda text: says(sample, scale, text, tolerance(key)), f"n, mean, error, olympic mean {numbers}")


def facts_of(runs: Sequence[JournalFigures], key: str, absent: str = "") -> That:
    return these({str(run.params.get(key, absent)) for run in runs} - {""})
