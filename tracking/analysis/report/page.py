"""A report as files: one page that needs nothing else, Markdown, CSV, JSON and the figures."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tracking.analysis.report.pictures import Plot
from tracking.analysis.report.report import Report
from tracking.analysis.results import Table
from tracking.base.number_text import counted
from tracking.base.safe_text import in_csv, in_markdown, visible
from tracking.record import documents

UNBROKEN = 28  # characters of a cell that does not wrap, so that a figure stays beside its error


def write(report: Report, folder: Path) -> list[Path]:
    """Write report.html, .md, .csv and .json, and return what was written.

    Each picture is report-<name>.png, and report-<name>.json holds the data that it was drawn from.

    Raises OSError if the folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "report.html": html(report),
        "report.md": markdown(report),
        "report.csv": rows(report),
        "report.json": _json(report.plain()),
    }
    texts |= {_file(plot, "json"): _compact(plot.plain()) for plot in report.plots}
    _write_texts(texts, folder)
    for plot in report.plots:
        with documents.replacing(folder / _file(plot)) as file:
            file.write(plot.png)
    return [folder / name for name in [*texts, *map(_file, report.plots)]]


def write_tables(title: str, tables: Sequence[Table], folder: Path) -> list[Path]:
    """Write tables without runs as report.html, .md and .json, and return the files. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {"title": title, "tables": [plain_table(table) for table in tables]}
    texts = {
        "report.html": _rendered(Report(title, "", [], "", [], [], tables=list(tables)), ""),
        "report.md": "\n\n".join([_title(title), *(table.markdown().strip("\n") for table in tables)]) + "\n",
        "report.json": _json(document),
    }
    _write_texts(texts, folder)
    return [folder / name for name in texts]


def plain_table(table: Table) -> dict[str, Any]:
    """A table for JSON, with unrounded numbers."""
    return {"title": table.title, "columns": list(table.columns), "rows": table.rows, "note": table.note}


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(documents.finite(document), indent=2, allow_nan=False) + "\n"


def _compact(document: Mapping[str, Any]) -> str:
    """JSON in one line: a curve has thousands of points."""
    return json.dumps(documents.finite(document), separators=(",", ":"), allow_nan=False) + "\n"


def _write_texts(texts: Mapping[str, str], folder: Path) -> None:
    for name, text in texts.items():
        documents.write_text(folder / name, text)


def _title(title: str) -> str:
    return f"# {in_markdown(title)}"


def _file(plot: Plot, ending: str = "png") -> str:
    return f"report-{plot.name}.{ending}"


def html(report: Report) -> str:
    """The report as one page that holds its figures, from page.html.jinja. Text of runs is escaped."""
    return _rendered(report, _about(report))


def _rendered(report: Report, about: str) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # only when a page is written

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    pictures = [(plot, base64.b64encode(plot.png).decode()) for plot in report.plots]
    template = environment.get_template("page.html.jinja")
    return visible(template.render(report=report, about=about, pictures=pictures, unbroken=UNBROKEN))


def markdown(report: Report) -> str:
    """The report as Markdown, with links to the figures that `write` puts beside it, and its details folded."""
    sentences = [*report.search_words, *report.answer_sentences]
    parts = [_title(report.title), in_markdown(_about(report)), *map(in_markdown, sentences)]
    if report.warnings:
        warnings = "\n".join(f"- {in_markdown(report.short(warning))}" for warning in report.warnings)
        parts.append(f"**{counted(len(report.warnings), 'warning')}**\n\n{warnings}")
    first = report.first_plots
    parts += (_picture(report, plot) for plot in first)
    parts += (_table(report, table) for table in report.rankings)
    parts += (_picture(report, plot) for plot in report.plots if plot not in first)
    parts += ["<details><summary>Details: all tables</summary>", *map(in_markdown, report.details)]
    parts += [*(_table(report, table) for table in report.others), "</details>"]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _picture(report: Report, plot: Plot) -> str:
    caption = in_markdown(report.short(plot.caption))
    return f"![{caption}]({_file(plot)})\n\n{caption}"


def _table(report: Report, table: Table) -> str:
    title = report.short(table.title)
    return (
        replace(table, title=title).markdown()
        if table.rows
        else f"**{in_markdown(title)}**\n\n{in_markdown(table.note)}"
    )


def rows(report: Report) -> str:
    """The report's figures as CSV, one row each."""
    headings = ["figure", "metric", "n", "mean", "bound", "standard_error", "olympic_mean", "text"]
    lines: list[list[object]] = [["workload", *report.axes, *headings]]
    for figure in report.figures:
        estimate = figure.estimate
        labels = [figure.setting[axis] for axis in report.axes]
        numbers = [estimate.n, estimate.mean, estimate.bound, estimate.error, estimate.olympic, estimate.text()]
        lines.append([figure.task, *labels, figure.heading, figure.key, *numbers])
    return in_csv(lines)


def _about(report: Report) -> str:
    """The line below the title: the number of runs, the workloads, the axes and the store."""
    day = time.strftime("%Y-%m-%d", time.gmtime())
    titles = "; ".join(task.title for task in report.tasks)
    return f"{counted(len(report.runs), 'run')} of {titles}, by {', '.join(report.axes)}; from {report.source}, {day}"
