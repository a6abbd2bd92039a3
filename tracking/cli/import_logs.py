"""python -m tracking import: make runs from logs of MLPerf submissions.

JSON: `imported`, one for each file, with `file`, `folder`, `new` (false if it was imported before), `note` and
`not_understood` (the parts of the log that no figure uses).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conf.target import parse
from tracking.base.safe_text import printable
from tracking.cli.command_type import SUCCESS, Answer, Command, sentence_of

if TYPE_CHECKING:
    from tracking.jobs.importing import Imported


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="MLPerf logs, one for each run: result_0.txt"
    )
    parser.add_argument(
        "--runs-dir", type=Path, metavar="FOLDER", default=Path("runs"), help="folder for the run folders"
    )
    parser.add_argument("--gpus", type=int, metavar="N", help="number of devices, if the log does not have it")
    parser.add_argument("--precision", default="unknown", help="precision of the training, such as fp16")
    parser.add_argument("--target", help="target accuracy, or <=NUMBER; default: the log's, or MLPerf's")
    parser.add_argument("--name", help="prefix of the runs' names; default: submitter and benchmark")


def run(arguments: argparse.Namespace) -> Answer:
    """Import each file, or find the run of an earlier import. Raises ValueError that names wrong files."""
    from tracking.jobs.importing import LogOptions, import_log
    from tracking.store import server

    if arguments.gpus is not None and arguments.gpus < 1:
        raise ValueError(f"--gpus {arguments.gpus}: must be 1 or more")
    uri = server.option_uri(None)
    try:
        target = None if arguments.target is None else parse(arguments.target)
    except ValueError as error:
        raise ValueError(f"--target {arguments.target}: {error}") from None
    options = LogOptions(arguments.runs_dir, uri, arguments.gpus, arguments.precision, target, arguments.name)
    imported, refusals = [], []
    for file in arguments.files:
        try:
            imported.append(import_log(file, options))
        except OSError as error:
            refusals.append(sentence_of(error))
        except ValueError as error:
            refusals.append(str(error))
        else:
            show(imported[-1])
    if refusals:
        raise ValueError("; ".join(refusals))
    return Answer(SUCCESS, {"imported": [json_row(imported_log) for imported_log in imported]})


def show(imported: Imported) -> None:
    state = "imported" if imported.new else "already imported"
    print(printable(f"{state}: {imported.folder} {imported.note}".strip()), flush=True)
    if imported.not_understood:
        print(printable(f"  not understood: {imported.not_understood}"), flush=True)


def json_row(imported: Imported) -> dict[str, Any]:
    return {
        "file": str(imported.file), "folder": str(imported.folder), "new": imported.new, "note": imported.note,
        "not_understood": imported.not_understood,
    }  # fmt: skip


IMPORT = Command("import", "make runs from logs of MLPerf submissions", add_arguments, run)
