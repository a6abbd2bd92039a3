"""python -m tracking import: logs of MLPerf's submissions as runs.

JSON: `imported`, one a file, each with `file`, `folder`, `new` (false where it had been imported before), `note` and
`not_understood`, what of the log is in no figure.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conf.target import parse
from tracking.base.safe_text import printable
from tracking.cli.command_type import WELL, Answer, Command

if TYPE_CHECKING:
    from tracking.jobs.importing import Imported


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="logs of MLPerf, a run each: result_0.txt")
    parser.add_argument(
        "--runs-dir", type=Path, metavar="FOLDER", default=Path("runs"), help="where run folders are made"
    )
    parser.add_argument("--gpus", type=int, metavar="N", help="devices that it ran on, where the log does not say it")
    parser.add_argument("--precision", default="unknown", help="what it computed in, as ours is called: fp16")
    parser.add_argument("--target", help="accuracy to be reached, or <=NUMBER; default: the log's, or MLPerf's")
    parser.add_argument("--name", help="beginning of the runs' names; default: who submitted, and what")


def run(arguments: argparse.Namespace) -> Answer:
    """Import each file, or find what it was imported as. Raises ValueError that names those that are no logs."""
    from tracking.jobs.importing import LogOptions, import_log
    from tracking.store import server

    if arguments.gpus is not None and arguments.gpus < 1:
        raise ValueError(f"--gpus {arguments.gpus}: must be 1 or more")
    uri = server.named(None)
    target = None if arguments.target is None else parse(arguments.target)
    asked = LogOptions(arguments.runs_dir, uri, arguments.gpus, arguments.precision, target, arguments.name)
    imported, refused = [], []
    for file in arguments.files:
        try:
            imported.append(import_log(file, asked))
        except ValueError as error:
            refused.append(str(error))
        else:
            show(imported[-1])
    if refused:
        raise ValueError("; ".join(refused))
    return Answer(WELL, {"imported": [plain(each) for each in imported]})


def show(imported: Imported) -> None:
    what = "imported" if imported.new else "was there"
    print(printable(f"{what}: {imported.folder} {imported.note}".strip()), flush=True)
    if imported.not_understood:
        print(printable(f"  not understood: {imported.not_understood}"), flush=True)


def plain(imported: Imported) -> dict[str, Any]:
    return {
        "file": str(imported.file), "folder": str(imported.folder), "new": imported.new, "note": imported.note,
        "not_understood": imported.not_understood,
    }  # fmt: skip


IMPORT = Command("import", "make runs of logs of MLPerf's submissions", add_arguments, run)
