"""python -m tracking audit: check the files of a report against the run folders, at any later time.

JSON: `num_figures` and `num_runs` that were compared, and `differences`, a list of sentences.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracking.cli import store_options
from tracking.cli.command_type import FAILURE, SUCCESS, Answer, Command

if TYPE_CHECKING:
    from rich.console import Console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("report", type=Path, metavar="FOLDER", help="folder of the report")
    parser.add_argument(
        "--runs-dir", type=Path, metavar="FOLDER", default=store_options.RUNS_DIR,
        help="folder with the run folders (%(default)s)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> Answer:
    """Exit code 0, or 1 if a value differs. Raises ValueError or OSError if the folder has no report on runs."""
    from tracking.base.console import make_console

    document = check(make_console(), arguments.report, [arguments.runs_dir, arguments.report])
    return Answer(FAILURE if document["differences"] else SUCCESS, document)


def check(console: Console, folder: Path, roots: Sequence[Path]) -> dict[str, Any]:
    """Recompute a report's files from the journals, print the differences, and return the JSON document.

    Raises ValueError or FileNotFoundError if the folder has no report on runs.
    """
    from tracking.analysis.audit import audit_folder
    from tracking.base.number_text import counted, verb

    audit_result = audit_folder(folder, roots)
    for sentence in audit_result.differences:
        console.print(f"differs: {sentence}", markup=False, soft_wrap=True)
    num_differences = len(audit_result.differences)
    verdict = f"{num_differences} {verb('do', num_differences)} not agree" if num_differences else "all agree"
    searched = ", ".join(map(str, dict.fromkeys(roots)))
    values, journals = counted(audit_result.num_figures, "value"), counted(audit_result.num_runs, "journal")
    console.print(
        f"recomputed {values} from {journals} in {searched}: {verdict}. Not checked: sentences other than the answer,"
        " and drawings",
        markup=False, soft_wrap=True,
    )  # fmt: skip
    return {
        "num_figures": audit_result.num_figures,
        "num_runs": audit_result.num_runs,
        "differences": audit_result.differences,
    }


AUDIT = Command("audit", "check a report's files against the run folders", add_arguments, run)
