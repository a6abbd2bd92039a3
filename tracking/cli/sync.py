"""python -m tracking sync: upload the parts of run folders that MLflow lacks.

JSON: `outcomes`, one for each folder, with `folder`, `state` (complete, running or failed) and `message`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tracking.base import secrets
from tracking.base.safe_text import one_line
from tracking.cli.command_type import FAILURE, SUCCESS, Answer, Command, Refused
from tracking.request.name_checks import check_uri

if TYPE_CHECKING:
    from tracking.jobs.follow import Outcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folders",
        nargs="*",
        type=Path,
        metavar="FOLDER",
        default=[Path("runs")],
        help="run folders, or folders that contain them",
    )
    parser.add_argument(
        "--ended", action="store_true", help="you know that the runs have ended, even if that cannot be seen from here"
    )
    parser.add_argument("--again", action="store_true", help="upload everything again, to a server that lost data")
    parser.add_argument(
        "--to", metavar="URI", help="upload to this tracking server with your credentials, not to the folders' server"
    )


def run(arguments: argparse.Namespace) -> Answer:
    """Upload every run folder at or below the roots. Exit code 1 if something is left. Raises Refused without runs."""
    from tracking.jobs.follow import sync, unfinished
    from tracking.record import run_folder
    from tracking.store import server

    if arguments.to is not None:
        check_uri(arguments.to, "--to")
    uri = server.option_uri(arguments.to)
    if missing := [str(root) for root in arguments.folders if not root.exists()]:
        raise Refused(f"{', '.join(missing)}: no run found. Next: give your runs_dir")
    for root in arguments.folders:
        unfinished.remove_half_made(root)
    folders = [folder for root in arguments.folders for folder in run_folder.run_folders(root)]
    if not folders:
        roots = ", ".join(map(str, arguments.folders))
        raise Refused(f"{roots}: no run found. Next: give your runs_dir")
    outcomes = sync.sync(folders, uri if arguments.to else None, show, ended=arguments.ended, again=arguments.again)
    complete = all(outcome.state == "complete" for outcome in outcomes)
    return Answer(SUCCESS if complete else FAILURE, {"outcomes": [json_row(outcome) for outcome in outcomes]})


def show(outcome: Outcome) -> None:
    print(one_line(f"{outcome.state}: {outcome.folder} {outcome.message}".strip()), flush=True)


def json_row(outcome: Outcome) -> dict[str, str]:
    return {"folder": str(outcome.folder), "state": outcome.state, "message": secrets.redact(outcome.message)}


SYNC = Command("sync", "upload the parts of run folders that MLflow lacks", add_arguments, run)
