"""python -m tracking follow, and watch: show runs of another launcher, on any host that has their folders.

JSON: follow has `folder`, and `exit_code` as of launch.py; watch has `folder`, `damaged` (a sentence for each of a
sweep's own files that cannot be read), and `runs`, each with `run`, `state`, `epoch`, `samples_per_sec`, `loss`,
`evaluated` and `warnings`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracking.cli.command_type import FAILURE, SUCCESS, Answer, Command, Refused

if TYPE_CHECKING:
    from tracking.jobs.watch import LiveRun

TERMINAL_INTERVAL_SEC, PLAIN_INTERVAL_SEC = 1.0, 10.0  # of watch, on a terminal and elsewhere
MOST_INTERVAL_SEC = 86400


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder of a sweep or a run")
    parser.add_argument("--trust", action="store_true", help="follow another user's folder, and execute what it names")


def run(arguments: argparse.Namespace) -> Answer:
    """Show the jobs as launch.py does, submit those not yet submitted, and mirror them to MLflow."""
    import time

    from tracking.jobs.node import signals
    from tracking.jobs.queues import follow
    from tracking.record import files, run_folder

    folder = arguments.folder.resolve()
    if not files.exists(folder / run_folder.RUN):
        raise Refused(f"{arguments.folder}: not the folder of a run or a sweep. Next: give one in your runs_dir")
    try:
        code = follow(folder, time.monotonic(), arguments.trust)
    except signals.Interrupted:
        code = 1
    return Answer(code, {"folder": str(folder), "exit_code": code})


FOLLOW = Command("follow", "show and mirror runs that were submitted to a cluster, until they end", add_arguments, run)


def add_watch_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", nargs="?", metavar="RUN|SWEEP", help="a folder, or a name in --runs-dir; default: the newest there"
    )
    parser.add_argument(
        "--runs-dir", type=Path, default=Path("runs"), help="folder with the run folders; default: runs"
    )
    parser.add_argument(
        "--every", type=float, metavar="SEC", help="seconds between updates; default: 1 on a terminal, else 10"
    )
    parser.add_argument("--once", action="store_true", help="show the state once, and exit")


def run_watch(arguments: argparse.Namespace) -> Answer:
    """Draw until all runs have ended. It only reads the folders."""
    from tracking.base.console import make_console
    from tracking.jobs.watch import screen
    from tracking.record import run_folder

    if arguments.every is not None and not 0 < arguments.every <= MOST_INTERVAL_SEC:  # refuses NaN, too
        raise Refused(f"--every {arguments.every:g}: must be above 0, and at most {MOST_INTERVAL_SEC} (a day)")
    folder = find_folder(arguments.folder, arguments.runs_dir)
    console = make_console()
    interval_sec = arguments.every or (TERMINAL_INTERVAL_SEC if console.is_terminal else PLAIN_INTERVAL_SEC)
    runs = screen.watch(folder, console, interval_sec, arguments.once)
    if not runs:
        print(f"note: {folder} has no run yet, or none that this version can read", file=sys.stderr)
    damaged = damaged_files(folder)
    for sentence in damaged:
        print(f"note: {sentence}", file=sys.stderr)
    has_failed = bool(damaged) or any(live_run.has_failed for live_run in runs)
    rows = [json_row(live_run, run_folder.now_ms()) for live_run in runs]
    return Answer(FAILURE if has_failed else SUCCESS, {"folder": str(folder), "runs": rows, "damaged": damaged})


def damaged_files(folder: Path) -> list[str]:
    """A sentence for each of a sweep's own files that cannot be read; empty for a run, which says so itself."""
    from tracking.jobs.plan import sweep
    from tracking.jobs.search import damage
    from tracking.record import files, run_folder

    if files.exists(folder / run_folder.CONFIG):
        return []
    words = [damage(folder)]
    for read in (run_folder.read_info, run_folder.read_result, sweep.definition):
        try:
            read(folder)
        except (FileNotFoundError, NotADirectoryError):
            pass  # A sweep that still runs has no result.
        except (OSError, ValueError) as error:
            words.append(str(error))
    return [sentence for sentence in words if sentence]


def find_folder(name: str | None, runs_dir: Path) -> Path:
    """The folder of a run or sweep, from a path or a name in `runs_dir`; None: the newest there. Raises Refused."""
    from tracking.record import files, run_folder

    if name is None:
        folders = files.folders(runs_dir, run_folder.RUN) if runs_dir.is_dir() else []
        if not folders:
            raise Refused(f"{runs_dir}: no run found. Next: give the folder of a run or a sweep, or --runs-dir")
        return max(folders, key=lambda path: path.name).resolve()
    for path in (Path(name), runs_dir / name):
        if files.exists(path / run_folder.RUN):
            return path.resolve()
    raise Refused(
        f"{name}: not the folder of a run or a sweep, nor a name of one in {runs_dir}. Next: give one, or --runs-dir"
    )


def json_row(run: LiveRun, now_ms: int) -> dict[str, Any]:
    return {
        "run": run.name, "state": run.state, "epoch": run.epoch, "samples_per_sec": run.signs.last_rate,
        "loss": run.loss, "evaluated": run.evaluated, "warnings": run.warnings(now_ms),
    }  # fmt: skip


WATCH = Command("watch", "show runs while they train, from their folders", add_watch_arguments, run_watch)
