"""python -m tracking {fingerprint,sync}: the commands beside launch.py."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracking.sync import Outcome


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tracking", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    fingerprint = commands.add_parser("fingerprint", help="print the environment that a run would record")
    fingerprint.add_argument("--json", action="store_true", help="as JSON, every value")
    sync = commands.add_parser("sync", help="upload to MLflow what is missing there of run folders")
    sync.add_argument("folders", nargs="*", type=Path, default=[Path("runs")], help="run folders, or folders of them")
    sync.add_argument(
        "--ended", action="store_true", help="end runs too of which it cannot be seen from here whether they go on"
    )
    sync.add_argument("--again", action="store_true", help="send all again, to a server that has lost some of it")
    arguments = parser.parse_args(argv)
    if arguments.command == "fingerprint":
        return print_fingerprint(arguments.json)
    return upload(arguments.folders, arguments.ended, arguments.again)


def print_fingerprint(as_json: bool) -> int:
    from tracking.fingerprint import Collector, format_table

    collector = Collector()
    import torch  # for the versions as loaded; beside nvidia-smi, which takes as long

    found = collector.finish(torch)
    print(json.dumps(found, indent=2) if as_json else format_table(found))
    return 0


def upload(roots: list[Path], ended: bool, again: bool) -> int:
    """Upload every run folder at or below the roots; exit code 1 where something is left, 2 where there is none."""
    from tracking import run_folder, sync

    folders = [folder for root in roots for folder in run_folder.run_folders(root)]
    if not folders:
        print(f"no run folder at or below {', '.join(map(str, roots))}; give your runs_dir", file=sys.stderr)
        return 2
    outcomes = sync.sync(folders, progress=show, ended=ended, again=again)
    return 0 if all(one.state == "complete" for one in outcomes) else 1


def show(outcome: Outcome) -> None:
    print(f"{outcome.state}: {outcome.folder} {outcome.message}".strip())


if __name__ == "__main__":
    sys.exit(main())
