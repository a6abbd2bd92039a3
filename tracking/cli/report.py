"""python -m tracking report: write the report of a sweep, an experiment or runs, and print its tables.

JSON: `report`, the content of report.json; `written`, the files; `attached`, the id of the MLflow run that got them, or
null; `search`, the answers of searches as in search.json; `check`, null without --check, else `num_figures`, `num_runs`
and `differences`, a list of sentences. With --reference-only: `tables`, each with `title`, `columns`, `rows` and
`note`; and `written`, the files with --out.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracking.cli import audit, store_options
from tracking.cli.command_type import FAILURE, SUCCESS, Answer, Command, Refused, writing

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from tracking.analysis.report import Report
    from tracking.analysis.results import Runs


OPTION_TABLES = ("within", "over", "beside", "published", "stacks", "missing")  # tables that an option asks for


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from tracking.analysis.published import studies

    parser.add_argument(
        "selectors", nargs="*", metavar="RUNS", help="a sweep, an experiment, a run's id, name or folder"
    )
    parser.add_argument(
        "--by", type=_keys, default=[], metavar="KEY[,KEY...]",
        help="axes: params, tags (env.driver) or keys of config.yaml; default: the params that differ between the runs",
    )  # fmt: skip
    parser.add_argument(
        "--metric",
        help="metric that compares settings, in its declared direction; default: time/to_accuracy_sec if there is one",
    )
    parser.add_argument(
        "--within", type=_keys, default=[], metavar="TIME[,TIME...]",
        help="find the fewest devices, and the cheapest setting, that reach the target in 8h, 90min, ...",
    )  # fmt: skip
    parser.add_argument(
        "--over", metavar="KEY=VALUE[,KEY=VALUE...]", default="",
        help="score all workloads against this base, such as env.gpu='Tesla P100',gpus=1",
    )  # fmt: skip
    parser.add_argument("--details", action="store_true", help="print all tables, not only the answer and the ranking")
    parser.add_argument("--with-missed", action="store_true", help="also count runs that missed the target in n")
    parser.add_argument("--with-neighbours", action="store_true", help="also count runs that shared their machine")
    parser.add_argument(
        "--out",
        type=_output_folder,
        metavar="FOLDER",
        help="folder for the files; default: reports/<RUNS>, with --reference-only: no files",
    )
    store_options.add_arguments(parser)
    parser.add_argument("--attach", action="store_true", help="add the report to the sweep's parent run in MLflow")
    parser.add_argument("--reference", type=_keys, default=[], metavar="STUDY[,STUDY...]", help=studies.HELP)
    parser.add_argument("--reference-only", type=_keys, metavar="STUDY[,STUDY...]", help="print only these studies")
    parser.add_argument(
        "--check", action="store_true", help="recompute every number of the files from the run folders' journals"
    )


def _output_folder(text: str) -> Path:
    """The folder for the files; for a link, its target, since writing does not follow links."""
    return Path(text).resolve() if Path(text).is_symlink() else Path(text)


def run(arguments: argparse.Namespace) -> Answer:
    """Exit code 0; 1 if --check finds a difference or the server is unavailable; 2 if the request is refused."""
    from tracking.store.server import TrackingUnavailable

    try:
        return _report(arguments) if arguments.reference_only is None else _reference_only(arguments)
    except TrackingUnavailable as error:
        raise Refused(f"{error}. No report was written. {store_options.RETRY_ADVICE}", FAILURE) from error


def _reference_only(arguments: argparse.Namespace) -> Answer:
    from tracking.analysis.published import reference_tables
    from tracking.analysis.report import page
    from tracking.base.console import make_console

    tables = reference_tables.reference_tables(arguments.reference_only)
    title = f"Published figures: {', '.join(dict.fromkeys(arguments.reference_only))}"
    with writing("--out", "a folder"):
        written = page.write_tables(title, tables, arguments.out) if arguments.out else []

    def show_tables() -> None:
        console = make_console()
        for table in tables:
            console.print(table.rich())
        if written:
            console.print(f"written: {', '.join(map(str, written))}", soft_wrap=True)

    document = {"tables": [page.plain_table(table) for table in tables], "written": list(map(str, written))}
    return Answer(SUCCESS, document, show_tables)


def _report(arguments: argparse.Namespace) -> Answer:
    from tracking.analysis.published import comparison, studies
    from tracking.analysis.report import page
    from tracking.analysis.results import MlflowRuns
    from tracking.base.console import make_console
    from tracking.jobs.plan import sweep_report

    if not arguments.selectors:
        raise ValueError(
            "report: no runs are named. Next: name a sweep, an experiment or runs, or give --reference-only for"
            " published figures"
        )
    if arguments.reference:
        studies.known_studies(arguments.reference)
    store = store_options.open_runs(arguments)
    if arguments.attach and not isinstance(store, MlflowRuns):
        raise ValueError("--attach: writes to MLflow, but --from-folders reads folders. Next: leave one of them out")
    new_report = _make(store, arguments)
    comparison.add_published(new_report, arguments.reference)
    folder = arguments.out or Path("reports") / re.sub(r"[^\w.-]+", "-", "-".join(arguments.selectors))[:100]
    with writing("--out", "a folder"):
        written = page.write(new_report, folder)
    document: dict[str, Any] = {"report": new_report.plain(), "written": list(map(str, written)), "attached": None}
    console = make_console()  # standard output, or stderr beside a JSON document
    document["search"] = new_report.searched
    if not arguments.json:
        show(console, new_report, folder, arguments.details)
    console.print(f"written: {written[0]} and {len(written) - 1} files beside it", soft_wrap=True)
    if isinstance(store, MlflowRuns) and arguments.attach:
        document["attached"] = sweep_report.attach(store, new_report, written)
        console.print(f"attached to the run {document['attached']}", soft_wrap=True)
    roots = [arguments.runs_dir, *(Path(selector) for selector in arguments.selectors if Path(selector).is_dir())]
    document["check"] = audit.check(console, folder, roots) if arguments.check else None
    return Answer(FAILURE if arguments.check and document["check"]["differences"] else SUCCESS, document)


def _make(store: Runs, arguments: argparse.Namespace) -> Report:
    """Read the runs and make the report, with progress bars."""
    from tracking.analysis.compare import confounding
    from tracking.analysis.report import axes_with, base_of, report

    base = base_of(arguments.over) if arguments.over else {}

    with _progress() as progress:
        reading_task = progress.add_task("reading runs", total=None)
        runs = store.find(arguments.selectors, lambda number: progress.update(reading_task, completed=number))
        progress.update(reading_task, total=len(runs), completed=len(runs))
        figures_task = progress.add_task("files, histories and figures", total=None)
        all_runs = runs
        runs, left_out_note = (runs, "") if arguments.with_neighbours else confounding.comparable(runs)
        axes = axes_with(base, arguments.by, runs) if base else arguments.by
        new_report = report.make(
            store, arguments.selectors, runs, axes, arguments.metric, arguments.with_missed,
            lambda: progress.advance(figures_task), _searched(arguments),
        )  # fmt: skip
    report.add_asked(new_report, arguments.within, base)
    new_report.warnings += [left_out_note] if left_out_note else []
    new_report.warnings += _damaged(arguments)
    counted_ids = {run.id for run in runs}
    new_report.with_neighbours = arguments.with_neighbours
    new_report.left_out += [(run, report.SHARED_MACHINE) for run in all_runs if run.id not in counted_ids]
    return new_report


def _searched(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The answers of the named searches, each once."""
    from tracking.jobs.search import answer_in

    answers = [answer for folder in _named_folders(arguments) if (answer := answer_in(folder))]
    return [answer for place, answer in enumerate(answers) if answer not in answers[:place]]


def _damaged(arguments: argparse.Namespace) -> list[str]:
    """Why answers of the named searches are missing from the report, each once."""
    from tracking.jobs.search import damage

    reasons = dict.fromkeys(filter(None, map(damage, _named_folders(arguments))))
    return [f"The answer of a search is missing: {reason}" for reason in reasons]


def _named_folders(arguments: argparse.Namespace) -> list[Path]:
    return [folder for name in arguments.selectors for folder in (Path(name), arguments.runs_dir / name)]


def show(console: Console, new_report: Report, folder: Path, details: bool = False) -> None:
    """Print the answers, those of searches first, the warnings and the ranked settings.

    Then print the tables that an option asks for; with `details`, all tables.
    """
    for search_answer in new_report.searched:
        console.print(search_answer["words"], markup=False, soft_wrap=True, style="bold")
    for answer in new_report.answers:
        console.print(answer.headline, markup=False, soft_wrap=True, style="bold")
        if answer.beside:
            console.print(answer.beside, markup=False, soft_wrap=True)
    for warning in new_report.warnings:
        console.print(f"careful: {new_report.short(warning)}", markup=False, soft_wrap=True)
    for table in [
        *new_report.rankings,
        *(table for table in new_report.others if details or table.kind in OPTION_TABLES),
    ]:
        console.print(replace(table, title=new_report.short(table.title)).rich() if table.rows else table.note)
    if not details:
        console.print(f"more: {folder / 'report.html'}; --details prints all tables", soft_wrap=True)


def _keys(text: str) -> list[str]:
    return [key.strip() for key in text.split(",") if key.strip()]


def _progress() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


REPORT = Command("report", "compare runs: tables, figures, a page", add_arguments, run)
