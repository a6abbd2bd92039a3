"""Runs that MLflow may lack something of: a mark beside the run folders, so that nobody has to look into thousands."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from pathlib import Path

from tracking.jobs.plan import DEFINITION, repair
from tracking.record import Running, files, run_folder, run_lock
from tracking.store.mirror import Mirror

MARKS = ".unfinished"  # a folder in runs_dir: an empty file a run or sweep, by its folder's name
MAX_LOOKED_AT = 50  # marks; each costs some milliseconds where files are far away
SILENT_SEC = 600.0  # a run of another machine that is silent for longer may have ended


def mark(folder: Path) -> None:
    with suppress(OSError):  # a reminder is worth no run
        (folder.parent / MARKS).mkdir(exist_ok=True)
        files.opened(folder.parent / MARKS / folder.name, "w").close()


def unmark(folder: Path) -> None:
    with suppress(OSError):
        files.remove(folder.parent / MARKS / folder.name)


def look_back(root: Path) -> tuple[list[Path], list[Path]]:
    """The runs and sweeps in `root` that were cut off, and are ended herewith, and the others to be uploaded.

    The newest marks are looked at; those of what is complete, or gone, are taken away.
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
                pass  # its launcher may still wait for the upload
            (cut_off if repair(folder) else others).append(folder)
        except Running as error:
            if not error.certain and silent_sec(folder) > SILENT_SEC:
                others.append(folder)
        except Exception:  # what is wrong with it is told by `sync`, and hinders nobody else
            others.append(folder)
    return cut_off, others


def remove_half_made(root: Path) -> None:
    """Remove the folders below that a process was making when it was killed: without run.json they are no runs yet."""
    for lock in list(root.rglob(run_folder.RUN_LOCK)):
        folder = lock.parent
        with suppress(OSError, Running):
            of_runs = {path.name for path in folder.iterdir() if path.name[0] != "."} - {DEFINITION, run_folder.VIEW}
            if not of_runs and not files.exists(folder / run_folder.RUN):
                with run_lock.hold_abandoned(folder):
                    shutil.rmtree(folder)


def incomplete(folder: Path) -> list[Path]:
    """The folder, and of a sweep its jobs' folders, as far as MLflow lacks something of them."""
    return [path for path in run_folder.run_folders(folder) if not is_complete(path)]


def is_complete(folder: Path) -> bool:
    """Whether MLflow holds the whole of a run that has ended; not of a folder that cannot be read."""
    try:
        return Mirror(folder).complete
    except (OSError, ValueError):
        return False


def silent_sec(folder: Path) -> float:
    """How long ago something was last written to a journal of the run or sweep."""
    written = [path.lstat().st_mtime for path in folder.rglob(run_folder.JOURNAL)]
    return time.time() - max(written, default=0.0)
