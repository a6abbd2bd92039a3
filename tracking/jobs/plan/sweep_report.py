"""The report of a sweep as part of its parent run: written into the sweep's folder, or attached to it in MLflow."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tracking.analysis.results import FolderRuns, MlflowRuns
from tracking.base.safe_text import in_markdown
from tracking.record import NOTE_TAG, documents, files, run_folder

if TYPE_CHECKING:
    from tracking.analysis.report import Report

WHY_NONE = "report.failed.txt"  # among the sweep's files where a report could not be made
MOST_LINES = 2  # of an answer in a terminal
BETWEEN = "\n\n---\n\n"  # the answer and what the note was before


def write(folder: Path, searched: str = "") -> str:
    """Write the report into the sweep's folder, from where it goes to MLflow; returns its part of the run's note.

    The axes are those of the sweep's study, if it is of one. The answer of a search, `searched`, comes first in the
    report. Fewer than two runs get no report, and the text is empty. It is empty, too, where anything goes wrong; a
    file then says why.
    """
    from tracking.analysis.published import comparison  # Here: no run's start is to wait for what draws reports.
    from tracking.analysis.report import page, report

    try:
        store = FolderRuns([folder])
        runs = store.find([folder.name])
        if sum(run.finished and not run.uncounted for run in runs) < 2:
            return ""
        study = run_folder.read_config(files.folders(folder, run_folder.CONFIG)[0]).study
        made = report.make(store, [folder.name], runs, study.by)
        made.searched = [searched] if searched else []
        comparison.add_published(made, study.reference)
        page.write(made, folder)
        (folder / WHY_NONE).unlink(missing_ok=True)
        return note(made)
    except Exception as error:  # days of training end here: a picture that cannot be drawn must not spoil them
        with suppress(OSError):
            documents.write_text(folder / WHY_NONE, f"{type(error).__name__}: {error}\n")
        return ""


def headlines(folder: Path) -> list[str]:
    """The answer that a sweep's report begins with, a line a workload; empty where the sweep has no report."""
    if files.exists(folder / WHY_NONE):
        return []
    with suppress(OSError, ValueError, KeyError):
        lines = documents.read_json(folder / "report.json")["headlines"]
        if len(lines) <= MOST_LINES:
            return [str(line) for line in lines]
        return [f"{len(lines)} workloads: the report says for each which setting is the best."]
    return []


def note(made: Report) -> str:
    """What comes first in the Markdown description of the parent run: the answer, and what to be careful about."""
    number = len(made.warnings)
    careful = f" To be careful about: {number} thing{'s' if number > 1 else ''}, in the report." if number else ""
    return f"{in_markdown(made.answer)}{careful} Tables and figures: `report.html` among the artifacts.{BETWEEN}"


def attach(store: MlflowRuns, made: Report, written: Sequence[Path]) -> str:
    """Upload the report to the parent run of the one sweep that it is about, and return that run's id.

    Raises ValueError where the runs are of no sweep or of several, and what `store` raises.
    """
    sweeps = {run.sweep for run in made.runs}
    sweep = sweeps.pop()
    if sweeps or sweep is None:
        raise ValueError("--attach: the report goes to a sweep's parent run, and these runs are not of one sweep")
    parent = store.parent(sweep)
    if parent is None:
        raise ValueError(f"--attach: {store.source} has no parent run of the sweep {sweep}; upload it with sync")
    before = parent.tags.get(NOTE_TAG, "").rpartition(BETWEEN)[2]
    store.attach(parent, written, {NOTE_TAG: note(made) + before})
    return parent.id
