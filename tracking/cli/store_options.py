"""Where the commands that read runs take them from: MLflow, or run folders."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tracking.base.safe_text import printable

if TYPE_CHECKING:
    from tracking.analysis.results import Runs


RUNS_DIR = Path("runs")
AGAIN = "try again, or give --from-folders with --runs-dir"  # said where a server does not answer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--uri", metavar="URI", help="MLflow tracking URI; default: $MLFLOW_TRACKING_URI, else sqlite:///mlflow.db"
    )
    parser.add_argument("--from-folders", action="store_true", help="read run folders and not MLflow")
    parser.add_argument(
        "--runs-dir", type=Path, metavar="FOLDER", default=RUNS_DIR, help="where run folders are (%(default)s)"
    )


def open_runs(arguments: argparse.Namespace) -> Runs:
    from tracking.analysis.results import FolderRuns, MlflowRuns

    if not arguments.from_folders:
        return MlflowRuns(arguments.uri)
    if not arguments.runs_dir.is_dir() and arguments.runs_dir != RUNS_DIR:
        raise ValueError(f"--runs-dir {arguments.runs_dir}: no such folder; give the one that holds run folders")
    return FolderRuns([arguments.runs_dir], _tell)


def _tell(words: str) -> None:
    """On stderr: the answer, which may be a JSON document, is on standard output."""
    print(printable(words), file=sys.stderr)
