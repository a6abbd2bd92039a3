"""The report of a sweep as part of its parent run: written into the sweep's folder, or attached to it in MLflow."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from conf.launch_options import StudyConfig
from tracking.analysis.published import comparison
from tracking.analysis.report import Report, page, report
from tracking.analysis.results import FolderRuns, MlflowRuns
from tracking.base.safe_text import in_markdown
from tracking.record import NOTE_TAG, documents

WHY_NONE = "report.failed.txt"  # among the sweep's files where a report could not be made
BETWEEN = "\n\n---\n\n"  # the answer and what the note was before


def write(folder: Path, note: str, study: StudyConfig | None = None) -> str:
    """Write the report into the sweep's folder, from where it goes to MLflow; returns the note with the answer in it.

    It is by the axes of the `study` that the sweep is of, if of any. There is none of fewer than two runs. Whatever
    goes wrong leaves the note as it is, and says why in a file.
    """
    try:
        store = FolderRuns([folder])
        runs = store.find([folder.name])
        if sum(run.finished and not run.uncounted for run in runs) < 2:
            return note
        made = report.make(store, [folder.name], runs, study.by if study else ())
        comparison.add_published(made, study.reference if study else ())
        page.write(made, folder)
        (folder / WHY_NONE).unlink(missing_ok=True)
        return answered(made, note)
    except Exception as error:  # days of training end here: a picture that cannot be drawn must not spoil them
        with suppress(OSError):
            documents.write_text(folder / WHY_NONE, f"{type(error).__name__}: {error}\n")
        return note


def answered(made: Report, before: str) -> str:
    """The Markdown description of the parent run: the answer, what to be careful about, and what was there before."""
    number = len(made.warnings)
    careful = f" To be careful about: {number} thing{'s' if number > 1 else ''}, in the report." if number else ""
    return (
        f"{in_markdown(made.answer)}{careful} Tables and figures: `report.html` among the artifacts.{BETWEEN}{before}"
    )


def attach(store: MlflowRuns, made: Report, files: Sequence[Path]) -> str:
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
    store.attach(parent, files, {NOTE_TAG: answered(made, before)})
    return parent.id
