"""python -m tracking sync: upload to MLflow what it lacks of run folders.

JSON: `outcomes`, one a folder, each with `folder`, `state` (complete, running or failed) and `message`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tracking.base import secrets
from tracking.base.safe_text import one_line
from tracking.cli.command_type import WELL, WRONG, Answer, Command, Refused
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
        help="run folders, or folders of them",
    )
    parser.add_argument(
        "--ended", action="store_true", help="end runs too of which it cannot be seen from here whether they go on"
    )
    parser.add_argument("--again", action="store_true", help="send all again, to a server that has lost some of it")
    parser.add_argument(
        "--to", metavar="URI", help="upload to this tracking server, with your credentials, whatever the folders name"
    )


def run(arguments: argparse.Namespace) -> Answer:
    """Upload every run folder at or below the roots; exit code 1 where something is left, 2 where there is none."""
    from tracking.jobs.follow import sync, unfinished
    from tracking.record import run_folder
    from tracking.store import server

    if arguments.to is not None:
        check_uri(arguments.to, "--to")
    given = server.named(arguments.to)
    for root in arguments.folders:
        unfinished.remove_half_made(root)
    folders = [folder for root in arguments.folders for folder in run_folder.run_folders(root)]
    if not folders:
        roots = ", ".join(map(str, arguments.folders))
        raise Refused(f"{roots}: no run folder at or below; give your runs_dir")
    outcomes = sync.sync(folders, given if arguments.to else None, show, ended=arguments.ended, again=arguments.again)
    complete = all(outcome.state == "complete" for outcome in outcomes)
    return Answer(WELL if complete else WRONG, {"outcomes": [plain(outcome) for outcome in outcomes]})


def show(outcome: Outcome) -> None:
    print(one_line(f"{outcome.state}: {outcome.folder} {outcome.message}".strip()), flush=True)


def plain(outcome: Outcome) -> dict[str, str]:
    return {
        "folder": str(outcome.folder),
        "state": outcome.state,
        "message": secrets.redact(outcome.message),
    }


SYNC = Command("sync", "upload to MLflow what is missing there of run folders", add_arguments, run)
