"""python -m tracking {diff,fingerprint,gate,report,sync}: the commands beside launch.py."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tracking import diff, gate, report_command


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tracking", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    fingerprint = commands.add_parser("fingerprint", help="print the environment that a run would record")
    fingerprint.add_argument("--json", action="store_true", help="as JSON, every value")
    report_command.add_arguments(commands.add_parser("report", help="compare runs: tables, figures, a page"))
    sync = commands.add_parser("sync", help="upload to MLflow what is missing there of run folders")
    sync.add_argument("folders", nargs="*", type=Path, default=[Path("runs")], help="run folders, or folders of them")
    diff.add_parser(commands)
    gate.add_parser(commands)
    arguments = parser.parse_args(argv)
    if "command_function" in arguments:
        return int(arguments.command_function(arguments))
    if arguments.command == "report":
        return report_command.run(arguments)
    return print_fingerprint(arguments.json) if arguments.command == "fingerprint" else upload(arguments.folders)


def print_fingerprint(as_json: bool) -> int:
    from tracking.fingerprint import Collector, format_table

    collector = Collector()
    import torch  # for the versions as loaded; beside nvidia-smi, which takes as long

    found = collector.finish(torch)
    print(json.dumps(found, indent=2) if as_json else format_table(found))
    return 0


def upload(roots: list[Path]) -> int:
    """Upload every run folder at or below the roots; exit code 1 where something is left, 2 where there is none."""
    from tracking import run_folder, sync

    folders = [folder for root in roots for folder in run_folder.run_folders(root)]
    if not folders:
        print(f"no run folder at or below {', '.join(map(str, roots))}; give your runs_dir", file=sys.stderr)
        return 2
    outcomes = sync.sync(folders, progress=lambda one: print(f"{one.state}: {one.folder} {one.message}".strip()))
    return 0 if all(one.state == "complete" for one in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
