"""The report of a sweep: written into the sweep's folder, or attached to its parent run in MLflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracking.analysis.results import FolderRuns, MlflowRuns
from tracking.base.number_text import counted
from tracking.base.safe_text import in_markdown
from tracking.record import NOTE_TAG, documents, files, run_folder

if TYPE_CHECKING:
    from tracking.analysis.report import Report

WHY_NONE = "report.failed.txt"  # in the sweep's folder if the report failed
MOST_LINES = 2  # most lines of an answer in a terminal
BETWEEN = "\n\n---\n\n"  # between the answer and the earlier note


def write(folder: Path, answer: Mapping[str, Any] | None = None) -> str:
    """Write the report into the sweep's folder; returns the report's part of the parent run's note.

    The mirror uploads the report to MLflow. A sweep of a study uses the study's axes. The report begins with
    the `answer` of a search. With fewer than two counted runs there is no report, and the text is empty.
    After an error the text is empty too, and the file WHY_NONE holds the error.
    """
    from tracking.analysis.published import comparison  # Here: slow to import, and starts must not wait.
    from tracking.analysis.report import page, report

    try:
        store = FolderRuns([folder])
        runs = store.find([folder.name])
        if sum(run.finished and not run.uncounted for run in runs) < 2:
            return ""
        study = run_folder.read_config(files.folders(folder, run_folder.CONFIG)[0]).study
        new_report = report.make(store, [folder.name], runs, study.by, searched=[answer] if answer else [])
        comparison.add_published(new_report, study.reference)
        page.write(new_report, folder)
        (folder / WHY_NONE).unlink(missing_ok=True)
        return note(new_report)
    except Exception as error:  # Days of training end here: a failed picture must not fail the sweep.
        with suppress(OSError):
            documents.write_text(folder / WHY_NONE, f"{type(error).__name__}: {error}\n")
        return ""


def headlines(folder: Path) -> list[str]:
    """The answer of a sweep's report, one line a workload; empty without a report."""
    if files.exists(folder / WHY_NONE):
        return []
    with suppress(OSError, ValueError, KeyError):
        lines = documents.read_json(folder / "report.json")["headlines"]
        if len(lines) <= MOST_LINES:
            return [str(line) for line in lines]
        return [f"{len(lines)} workloads: the report says for each which setting is the best."]
    return []


def note(new_report: Report) -> str:
    """The start of the parent run's Markdown description: the answer and the number of warnings."""
    warnings = [f"{counted(len(new_report.warnings), 'warning')} in the report."] if new_report.warnings else []
    sentences = [*map(in_markdown, new_report.answer_sentences), *warnings]
    return f"{' '.join([*sentences, 'Tables and figures: `report.html` among the artifacts.'])}{BETWEEN}"


def attach(store: MlflowRuns, new_report: Report, written: Sequence[Path]) -> str:
    """Upload the report to the parent run of its sweep; returns that run's id.

    Raises ValueError if the runs do not belong to exactly one sweep, and the errors of `store`.
    """
    sweeps = {run.sweep for run in new_report.runs}
    sweep = sweeps.pop()
    if sweeps or sweep is None:
        raise ValueError(
            "--attach: the report goes to a sweep's parent run, and these runs are not of one sweep."
            " Next: give one sweep"
        )
    parent = store.parent(sweep)
    if parent is None:
        raise ValueError(f"--attach: {store.source} has no parent run of the sweep {sweep}. Next: upload it with sync")
    before = parent.tags.get(NOTE_TAG, "").rpartition(BETWEEN)[2]
    store.attach(parent, written, {NOTE_TAG: note(new_report) + before})
    return parent.id
