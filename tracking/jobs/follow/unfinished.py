"""Marks of runs that may not be uploaded completely, so that a launcher need not read every run folder."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from pathlib import Path

from tracking.jobs.plan import DEFINITION, repair
from tracking.record import Running, files, run_folder, run_lock
from tracking.store.mirror import Mirror

MARKS = ".unfinished"  # a folder in runs_dir with an empty file for each run or sweep, named like its folder
MAX_LOOKED_AT = 50  # most marks that are read; each takes milliseconds on a network file system
SILENT_SEC = 600.0  # another machine's run may have ended after this silence


def mark(folder: Path) -> None:
    with suppress(OSError):  # a missing mark must not fail the run
        (folder.parent / MARKS).mkdir(exist_ok=True)
        files.opened(folder.parent / MARKS / folder.name, "w").close()


def unmark(folder: Path) -> None:
    with suppress(OSError):
        files.remove(folder.parent / MARKS / folder.name)


def look_back(root: Path) -> tuple[list[Path], list[Path]]:
    """Runs and sweeps in `root` that were cut off (this call ends them), and others that are not uploaded yet.

    Reads the newest MAX_LOOKED_AT marks, and removes marks of complete or deleted runs.
    """
    marks = root / MARKS
    cut_off: list[Path] = []
    others: list[Path] = []
    for name in sorted(files.names(marks), reverse=True)[:MAX_LOOKED_AT]:
        folder = root / name
        try:
            if folder.is_symlink() or not files.exists(folder / run_folder.RUN) or not incomplete(folder):
                unmark(folder)
                continue
            with run_lock.hold_abandoned(folder):
                pass  # raises Running if its launcher still waits for the upload
            (cut_off if repair(folder) else others).append(folder)
        except Running as error:
            if not error.certain and silent_sec(folder) > SILENT_SEC:
                others.append(folder)
        except Exception:  # `sync` reports a broken folder; it must not stop the others
            others.append(folder)
    return cut_off, others


def remove_half_made(root: Path) -> None:
    """Remove folders below `root` without run.json, left by a process that was killed while it made them."""
    for lock in list(root.rglob(run_folder.RUN_LOCK)):
        folder = lock.parent
        with suppress(OSError, Running):
            of_runs = {path.name for path in folder.iterdir() if path.name[0] != "."} - {DEFINITION, run_folder.VIEW}
            if not of_runs and not files.exists(folder / run_folder.RUN):
                with run_lock.hold_abandoned(folder):
                    shutil.rmtree(folder)


def incomplete(folder: Path) -> list[Path]:
    """Folders of the run, or of the sweep and its jobs, that MLflow does not hold completely."""
    return [path for path in run_folder.run_folders(folder) if not is_complete(path)]


def is_complete(folder: Path) -> bool:
    """Whether the run has ended and MLflow holds all of it; False for an unreadable folder."""
    try:
        return Mirror(folder).complete
    except (OSError, ValueError):
        return False


def silent_sec(folder: Path) -> float:
    """Seconds since the last write to a journal of the run or sweep."""
    written = [path.lstat().st_mtime for path in folder.rglob(run_folder.JOURNAL)]
    return time.time() - max(written, default=0.0)
