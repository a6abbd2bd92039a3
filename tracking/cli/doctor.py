"""python -m tracking doctor: everything that a run needs, tried out before it is needed. One line each.

Below it stands the table of stacks that a dry run shows. A stack that cannot run here is nothing to be mended.

JSON: `ok`, whether all is well; `findings`, each with `what`, `words` and `ok`; `stacks`, each with `stack`, `needs`,
`found` and `error` (empty where it can run).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tracking.cli.command_type import WELL, WRONG, Answer, Command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--uri", "--tracking-uri", metavar="URI",
        help="MLflow tracking URI; default: $MLFLOW_TRACKING_URI, else sqlite:///mlflow.db",
    )  # fmt: skip
    parser.add_argument("--experiment", default="timetrial", help="to which runs will go (%(default)s)")
    parser.add_argument(
        "--runs-dir", type=Path, metavar="FOLDER", default=Path("runs"), help="where run folders go (%(default)s)"
    )
    parser.add_argument("--dataset-path", type=Path, metavar="FOLDER", help="folder of a dataset's files")
    parser.add_argument(
        "--config-dir", type=Path, metavar="FOLDER", action="append", default=[], help="where stacks of your own are"
    )


def run(arguments: argparse.Namespace) -> Answer:
    """Print a line for each thing that a run needs, as soon as it is known; exit code 1 where one is to be fixed."""
    from tracking.jobs.doctor import Subject, examine
    from tracking.machine.environment import nvml
    from tracking.machine.stacks import declared, judge, verdict_table
    from tracking.store import server

    stacks = declared(arguments.config_dir)
    uri = server.named(arguments.uri)
    asked = Subject(uri, arguments.experiment, arguments.runs_dir, arguments.dataset_path)
    findings = []
    for finding in examine(asked):
        print(finding, flush=True)
        findings.append({"what": finding.what, "words": finding.safe_words, "ok": finding.ok})
    visible = nvml.visible_gpus()
    verdicts = [judge(stack, visible) for stack in stacks.values()]
    rows = [{"stack": each.stack, "needs": each.needs, "found": each.facts, "error": each.error} for each in verdicts]
    all_well = all(finding["ok"] for finding in findings)

    def show() -> None:
        from tracking.base.console import make_console

        make_console().print(verdict_table(verdicts))

    return Answer(WELL if all_well else WRONG, {"ok": all_well, "findings": findings, "stacks": rows}, show)


DOCTOR = Command(
    "doctor", "try out all that a run needs: GPUs, NCCL, server, upload, disk, data, stacks", add_arguments, run
)
