"""python -m tracking doctor: everything that a run needs, tried out before it is needed. One line each.

JSON: `ok`, whether all is well; `findings`, each with `what`, `words` and `ok`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tracking.commands.command import WELL, WRONG, Answer, Command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tracking-uri", help="default: $MLFLOW_TRACKING_URI, else sqlite:///mlflow.db")
    parser.add_argument("--experiment", default="timetrial", help="to which runs will go (%(default)s)")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"), help="where run folders go (%(default)s)")
    parser.add_argument("--dataset-path", type=Path, help="folder of a dataset's files")


def run(arguments: argparse.Namespace) -> Answer:
    """Print a line for each thing that a run needs, as soon as it is known; exit code 1 where one is to be fixed."""
    from tracking import server
    from tracking.commands import examination

    uri = server.named(arguments.tracking_uri)
    asked = examination.Subject(uri, arguments.experiment, arguments.runs_dir, arguments.dataset_path)
    findings = []
    for finding in examination.examine(asked):
        print(finding, flush=True)
        findings.append({"what": finding.what, "words": finding.safe_words, "ok": finding.ok})
    all_well = all(finding["ok"] for finding in findings)
    return Answer(WELL if all_well else WRONG, {"ok": all_well, "findings": findings})


DOCTOR = Command("doctor", "try out all that a run needs: GPUs, NCCL, server, upload, disk, data", add_arguments, run)
