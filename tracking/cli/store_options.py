"""The options of commands that read runs, from MLflow or from run folders."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tracking.base.safe_text import printable

if TYPE_CHECKING:
    from tracking.analysis.results import Runs


RUNS_DIR = Path("runs")
RETRY_ADVICE = "Next: try again, or give --from-folders with --runs-dir"  # if a server does not answer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--uri", metavar="URI", help="MLflow tracking URI; default: $MLFLOW_TRACKING_URI, else sqlite:///mlflow.db"
    )
    parser.add_argument("--from-folders", action="store_true", help="read run folders instead of MLflow")
    parser.add_argument(
        "--runs-dir", type=Path, metavar="FOLDER", default=RUNS_DIR, help="folder with the run folders (%(default)s)"
    )


def open_runs(arguments: argparse.Namespace) -> Runs:
    from tracking.analysis.results import FolderRuns, MlflowRuns

    if not arguments.from_folders:
        return MlflowRuns(arguments.uri, arguments.runs_dir)
    if not arguments.runs_dir.is_dir() and arguments.runs_dir != RUNS_DIR:
        raise ValueError(f"--runs-dir {arguments.runs_dir}: no such folder. Next: give the one with the run folders")
    return FolderRuns([arguments.runs_dir], _print_note)


def _print_note(note: str) -> None:
    """Print a note on stderr, since standard output is for the answer, which may be JSON."""
    print(printable(note), file=sys.stderr)
