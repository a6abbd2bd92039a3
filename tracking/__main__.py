"""python -m tracking {diff,doctor,fingerprint,gate,report,sync}: the commands beside launch.py."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from conf import secrets
from tracking.commands import report
from tracking.compare import diff, gate

if TYPE_CHECKING:
    from tracking.jobs import Outcome


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tracking", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    doctor = commands.add_parser("doctor", help="try out all that a run needs: GPUs, NCCL, server, upload, disk, data")
    doctor.add_argument("--tracking-uri", help="default: $MLFLOW_TRACKING_URI, else sqlite:///mlflow.db")
    doctor.add_argument("--experiment", default="timetrial", help="to which runs will go (%(default)s)")
    doctor.add_argument("--runs-dir", type=Path, default=Path("runs"), help="where run folders go (%(default)s)")
    doctor.add_argument("--dataset-path", type=Path, help="folder of a dataset's files")
    fingerprint = commands.add_parser("fingerprint", help="print the environment that a run would record")
    fingerprint.add_argument("--json", action="store_true", help="as JSON, every value")
    report.add_arguments(commands.add_parser("report", help="compare runs: tables, figures, a page"))
    sync = commands.add_parser("sync", help="upload to MLflow what is missing there of run folders")
    sync.add_argument("folders", nargs="*", type=Path, default=[Path("runs")], help="run folders, or folders of them")
    sync.add_argument(
        "--ended", action="store_true", help="end runs too of which it cannot be seen from here whether they go on"
    )
    sync.add_argument("--again", action="store_true", help="send all again, to a server that has lost some of it")
    diff.add_parser(commands)
    gate.add_parser(commands)
    arguments = parser.parse_args(argv)
    secrets.guard_tracebacks()
    if "command_function" in arguments:
        return int(arguments.command_function(arguments))
    if arguments.command == "report":
        return report.run(arguments)
    if arguments.command == "doctor":
        return examine(arguments)
    if arguments.command == "fingerprint":
        return print_fingerprint(arguments.json)
    return upload(arguments.folders, arguments.ended, arguments.again)


def examine(arguments: argparse.Namespace) -> int:
    """Print a line for each thing that a run needs; exit code 1 where one has to be put right."""
    from tracking.commands import doctor
    from tracking.mirror import server

    uri = server.absolute_uri(arguments.tracking_uri) if arguments.tracking_uri else server.default_uri()
    asked = doctor.Asked(uri, arguments.experiment, arguments.runs_dir, arguments.dataset_path)
    all_well = True
    for finding in doctor.examine(asked):
        print(finding, flush=True)
        all_well &= finding.ok
    return 0 if all_well else 1


def print_fingerprint(as_json: bool) -> int:
    from tracking.environment import Collector, format_table

    collector = Collector()
    import torch  # for the versions as loaded; beside nvidia-smi, which takes as long

    found = collector.finish(torch)
    print(json.dumps(found, indent=2) if as_json else format_table(found))
    return 0


def upload(roots: list[Path], ended: bool, again: bool) -> int:
    """Upload every run folder at or below the roots; exit code 1 where something is left, 2 where there is none."""
    from tracking.jobs import sync
    from tracking.run import run_folder

    folders = [folder for root in roots for folder in run_folder.run_folders(root)]
    if not folders:
        print(f"no run folder at or below {', '.join(map(str, roots))}; give your runs_dir", file=sys.stderr)
        return 2
    outcomes = sync.sync(folders, progress=show, ended=ended, again=again)
    return 0 if all(one.state == "complete" for one in outcomes) else 1


def show(outcome: Outcome) -> None:
    print(secrets.redact(f"{outcome.state}: {outcome.folder} {outcome.message}".strip()))


if __name__ == "__main__":
    sys.exit(main())
