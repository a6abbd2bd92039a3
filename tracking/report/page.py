"""A report as files: one page that needs nothing else, Markdown, CSV, JSON and the figures."""

from __future__ import annotations

import base64
import csv
import io
import json
import time
from html import escape
from pathlib import Path

from tracking.report.plots import Plot
from tracking.report.report import Report
from tracking.results import Table
from tracking.run import run_folder

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; color: #111; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top; }
th { border-bottom: 2px solid #555; } .whole { white-space: nowrap; }
.answer { font-size: 1.1rem; } .note, figcaption { color: #444; font-size: 13px; }
.warnings { border-left: 4px solid #d55e00; padding: .2rem 1rem; } figure { margin: 1.5rem 0; } img { max-width: 100%; }
@media print { body { max-width: none; margin: 0; font-size: 11px; } figure, tr { break-inside: avoid; } }
"""


WHOLE = 28  # characters of a cell that is not broken into lines


def write(report: Report, folder: Path) -> list[Path]:
    """Write report.html, .md, .csv and .json, and each figure as report-<name>.png; returns what was written.

    Raises OSError where the folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "report.html": html(report),
        "report.md": markdown(report),
        "report.csv": rows(report),
        "report.json": json.dumps(report.plain(), indent=2) + "\n",
    }
    for name, text in texts.items():
        run_folder.write_text(folder / name, text)
    for plot in report.plots:
        with run_folder.replacing(folder / _file(plot)) as path:
            path.write_bytes(plot.png)
    return [folder / name for name in [*texts, *map(_file, report.plots)]]


def _file(plot: Plot) -> str:
    return f"report-{plot.name}.png"


def html(report: Report) -> str:
    """One page with its figures in it; everything that comes from runs is escaped."""
    body = [f"<h1>{escape(report.title)}</h1>", f'<p class="note">{escape(_about(report))}</p>']
    body.append(f'<p class="answer">{escape(report.answer)}</p>')
    if report.warnings:
        items = "".join(f"<li>{escape(warning)}</li>" for warning in report.warnings)
        body.append(f'<div class="warnings"><b>To be careful about</b><ul>{items}</ul></div>')
    body += map(_html_table, report.tables)
    for plot in report.plots:
        data = base64.b64encode(plot.png).decode()
        image = f'<img alt="{escape(plot.caption)}" src="data:image/png;base64,{data}">'
        body.append(f"<figure>{image}<figcaption>{escape(plot.caption)}</figcaption></figure>")
    head = f'<meta charset="utf-8"><title>{escape(report.title)}</title><style>{STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(body) + "\n</body></html>\n"


def _html_table(table: Table) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in table.columns)
    body = "".join(f"<tr>{''.join(map(_html_cell, row))}</tr>\n" for row in table.text())
    drawn = f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return f"<h2>{escape(table.title)}</h2>\n{drawn if table.rows else ''}{note}"


def _html_cell(text: str) -> str:
    whole = ' class="whole"' if len(text) <= WHOLE else ""  # a figure stays beside its error
    return f"<td{whole}>{escape(text)}</td>"


def markdown(report: Report) -> str:
    parts = [f"# {report.title}", _about(report), report.answer]
    if report.warnings:
        parts.append("**To be careful about**\n\n" + "\n".join(f"- {warning}" for warning in report.warnings))
    for table in report.tables:
        parts.append(table.markdown() if table.rows else f"**{table.title}**\n\n{table.note}")
    parts += [f"![{plot.caption}]({_file(plot)})\n\n{plot.caption}" for plot in report.plots]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def rows(report: Report) -> str:
    """CSV: a row a figure."""
    text = io.StringIO()
    out = csv.writer(text)
    out.writerow(["workload", *report.axes, "figure", "metric", "n", "mean", "standard_error", "olympic_mean", "text"])
    for figure in report.figures:
        one = figure.estimate
        labels = [figure.setting[axis] for axis in report.axes]
        numbers = [one.n, one.mean, one.error, one.olympic, one.text()]
        out.writerow([figure.task, *labels, figure.heading, figure.key, *numbers])
    return text.getvalue()


def _about(report: Report) -> str:
    day = time.strftime("%Y-%m-%d", time.gmtime())
    return f"{len(report.runs)} runs from {report.source}, by {', '.join(report.axes)}; {day}"
