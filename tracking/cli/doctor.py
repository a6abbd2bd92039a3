"""python -m tracking doctor: try everything that a run needs, with one line for each.

Then comes a dry run's table of stacks. A stack that cannot run here is not a fault.

JSON: `ok`, whether everything works; `findings`, each with `what`, `words` and `ok`; `stacks`, each with `stack`,
`needs`, `found` and `error` (empty if it can run).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tracking.cli.command_type import FAILURE, SUCCESS, Answer, Command
from tracking.cli.stacks import add_config_dir


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--uri", "--tracking-uri", metavar="URI",
        help="MLflow tracking URI; default: $MLFLOW_TRACKING_URI, else sqlite:///mlflow.db",
    )  # fmt: skip
    parser.add_argument("--experiment", default="timetrial", help="MLflow experiment of the runs (%(default)s)")
    parser.add_argument(
        "--runs-dir", type=Path, metavar="FOLDER", default=Path("runs"), help="folder for run folders (%(default)s)"
    )
    parser.add_argument("--dataset-path", type=Path, metavar="FOLDER", help="folder of a dataset's files")
    add_config_dir(parser)


def run(arguments: argparse.Namespace) -> Answer:
    """Print each finding as soon as it is known. Exit code 1 if something must be fixed."""
    from tracking.jobs.doctor import Subject, examine
    from tracking.machine.environment import nvml
    from tracking.machine.stacks import declared, judge, verdict_table
    from tracking.store import server

    stacks = declared(arguments.config_dir)
    uri = server.option_uri(arguments.uri)
    subject = Subject(uri, arguments.experiment, arguments.runs_dir, arguments.dataset_path)
    findings = []
    for finding in examine(subject):
        print(finding, flush=True)
        findings.append({"what": finding.what, "words": finding.safe_words, "ok": finding.ok})
    visible = nvml.visible_gpus()
    verdicts = [judge(stack, visible) for stack in stacks.values()]
    rows = [
        {"stack": verdict.stack, "needs": verdict.needs, "found": verdict.facts, "error": verdict.error}
        for verdict in verdicts
    ]
    is_ok = all(finding["ok"] for finding in findings)

    def show() -> None:
        from tracking.base.console import make_console

        make_console().print(verdict_table(verdicts))

    return Answer(SUCCESS if is_ok else FAILURE, {"ok": is_ok, "findings": findings, "stacks": rows}, show)


DOCTOR = Command(
    "doctor", "try everything that a run needs: GPUs, NCCL, server, upload, disk, data, stacks", add_arguments, run
)
