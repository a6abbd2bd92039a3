"""Where the commands that read runs take them from: MLflow, or run folders."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracking.runs import Runs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--uri", help="MLflow's tracking URI; default: $MLFLOW_TRACKING_URI, else sqlite:///mlflow.db")
    where.add_argument(
        "--from-folders", nargs="*", type=Path, metavar="DIR", help="read run folders instead of MLflow; default: runs"
    )


def open_runs(arguments: argparse.Namespace) -> Runs:
    from tracking.runs import FolderRuns, MlflowRuns

    if arguments.from_folders is None:
        return MlflowRuns(arguments.uri)
    return FolderRuns(arguments.from_folders or [Path("runs")])
