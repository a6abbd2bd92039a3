"""Check the files in a report's folder.

report.json and the data of pictures are compared with the run folders, the other files with report.json.
`mean_pictures` makes the expected data for pictures of means, `curves` for curves.
"""

from __future__ import annotations

import csv
import html.parser
import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tracking.analysis.audit import curves, mean_pictures, published_comparisons, ranking_picture, workload_pictures
from tracking.analysis.audit.audit import audited
from tracking.analysis.audit.evidence import AuditResult, Evidence, by_identity, compare
from tracking.base.safe_text import in_csv, in_markdown, visible

# The expected panels of each picture, by its name. The function gets the picture for what the runs leave open, such as
# which of two median runs is drawn.
Due = Callable[[Evidence, Mapping[str, Any]], dict[str, Any]]
MADE: Mapping[str, Due] = {
    "accuracy": curves.accuracy,
    "elo": curves.elo,
    "utilisation": curves.utilisation,
    "mean-utilisation": curves.mean_utilisation,
    "settings": ranking_picture.settings,
    "reached": mean_pictures.reached,
    "scaling": mean_pictures.scaling,
    "batches": workload_pictures.batches,
    "throughput": mean_pictures.throughput,
    "stacks": mean_pictures.stacks,
    "cost": mean_pictures.cost,
    "energy": mean_pictures.energy,
    "roofline": mean_pictures.roofline,
    "workloads": workload_pictures.workloads,
    "busy": workload_pictures.busy,
    "nodes-beside-published": published_comparisons.nodes_picture,
}
NUMBERS = ("n", "mean", "bound", "standard_error", "olympic_mean", "text")


def audit_folder(folder: Path, roots: Sequence[Path]) -> AuditResult:
    """Compare report.json, .csv, .md and .html in `folder` with the run folders at or below `roots`.

    Raises FileNotFoundError without a report, and ValueError if its JSON is not that of a report.
    """
    path = folder / "report.json"
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{folder}: report.json is missing. Next: give the folder that a report was written to"
        ) from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(report, dict) or "runs" not in report:
        raise ValueError(f"{path}: is not a report on runs. Next: give the folder of a report on runs")
    tally, evidence = audited(report, roots)
    if evidence is not None:
        audit_pictures(folder, evidence, tally)
    for name, compare_file in (("report.csv", _csv), ("report.md", _markdown), ("report.html", _page)):
        if not (folder / name).exists():
            tally.note(False, f"{name}: is missing beside report.json")
            continue
        try:
            compare_file(report, (folder / name).read_text(encoding="utf-8"), tally)
        except (LookupError, TypeError, AttributeError):
            tally.note(False, f"{name}: report.json lacks parts of it")
    return tally


def _csv(report: Mapping[str, Any], text: str, tally: AuditResult) -> None:
    """Compare the CSV, with one row per figure."""
    rows = [["workload", *report["by"], "figure", "metric", *NUMBERS]]
    for figure in report["figures"]:
        labels = [figure["setting"][axis] for axis in report["by"]]
        numbers = ["" if figure[key] is None else str(figure[key]) for key in NUMBERS]
        rows.append([figure["workload"], *labels, figure["figure"], figure["key"], *numbers])
    written, expected = (list(csv.reader(content.splitlines())) for content in (text, in_csv(rows)))
    _compare("report.csv", written, expected, tally)


def _markdown(report: Mapping[str, Any], text: str, tally: AuditResult) -> None:
    """Compare the lines of its tables, and its answer."""
    expected = []
    for table in _filled(report):
        rows = [table["columns"], ["---"] * len(table["columns"]), *table["rows"]]
        expected += [f"| {' | '.join(map(in_markdown, row))} |" for row in rows]
    written = [line for line in text.splitlines() if line.startswith("| ")]
    _compare("report.md", written, expected, tally)
    _answer("report.md", " ".join(text.split("\n\n")), in_markdown(str(report["answer"])), tally)


def _page(report: Mapping[str, Any], text: str, tally: AuditResult) -> None:
    rows = [row for table in _filled(report) for row in (table["columns"], *table["rows"])]
    expected = [[visible(cell) for cell in row] for row in rows]
    page = _Cells()
    page.feed(text)
    _compare("report.html", page.rows, expected, tally)
    _answer("report.html", " ".join(page.paragraphs), visible(str(report["answer"])), tally)


def _filled(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The tables that have rows, in the order of a page: ranked settings come first."""
    return sorted((table for table in report["tables"] if table["rows"]), key=lambda table: table["kind"] != "ranking")


def _answer(name: str, paragraphs: str, answer: str, tally: AuditResult) -> None:
    tally.note(answer in paragraphs, f"{name}: its answer differs from that of report.json")


def _compare(name: str, there: Sequence[Any], rows: Sequence[Any], tally: AuditResult) -> None:
    for number, (written, expected) in enumerate(zip_longest(there, rows), 1):
        tally.note(written == expected, f"{name}, row {number}: it has {written}, report.json {expected}")


class _Cells(html.parser.HTMLParser):
    """The texts of a page's cells, by rows, and of its paragraphs."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.paragraphs: list[str] = []
        self._in_cell = self._in_paragraph = False

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td") and self.rows:
            self.rows[-1].append("")
            self._in_cell = True
        elif tag == "p":
            self.paragraphs.append("")
            self._in_paragraph = True

    def handle_endtag(self, tag: str) -> None:
        self._in_cell = self._in_cell and tag not in ("th", "td")
        self._in_paragraph = self._in_paragraph and tag != "p"

    def handle_data(self, data: str) -> None:
        if self._in_paragraph:
            self.paragraphs[-1] += data
        if self._in_cell:
            self.rows[-1][-1] += data


def audit_pictures(folder: Path, evidence: Evidence, tally: AuditResult) -> None:
    """Compare each report-<name>.json with the journals; captions are words."""
    for path in sorted(folder.glob("report-*.json")):
        name = path.stem.removeprefix("report-")
        number, kind = re.fullmatch(r"(?:(\d+)-)?(.*)", name).groups()  # type: ignore[union-attr]
        if kind not in MADE:
            tally.note(False, f"{path.name}: a picture of this name cannot be recomputed")
            continue
        try:
            picture = json.loads(path.read_text(encoding="utf-8"))
            workload = evidence.workloads()[int(number) - 1] if number else ""
            about = {key: picture.get(key) for key in ("name", "workload")}
            compare(tally, path.name, about, {"name": name, "workload": workload})
            if number and picture["workload"] != workload:
                continue
            compare(tally, path.name, _claimed(path.name, picture, tally), MADE[kind](evidence, picture))
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            tally.note(False, f"{path.name}: it does not hold a picture's data ({type(error).__name__}: {error})")


def _claimed(name: str, picture: Mapping[str, Any], tally: AuditResult) -> dict[str, Any]:
    """The claimed panels by identity, and their lines by name."""
    panels = by_identity(tally, name, picture["panels"], curves.identity)
    for where, panel in panels.items():
        lines = by_identity(tally, f"{name}: {where}", panel["lines"], lambda line: str(line["name"]))
        named = {key: {part: value for part, value in line.items() if part != "name"} for key, line in lines.items()}
        panels[where] = {key: panel[key] for key in panel.keys() - {"x", "y", "title"}} | {"lines": named}
    return dict(panels)
