"""Named arrays in $TIMETRIAL_CACHE (default: $XDG_CACHE_HOME/timetrial, else ~/.cache/timetrial)."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from filelock import FileLock

from tracking.machine.environment import cache, is_trusted, private_folder

Arrays = dict[str, np.ndarray]

MAPPED_BYTES = 1 << 20  # arrays from this size on are mapped into memory, and so shared by a machine's processes


def cached_arrays(room: str, files: Sequence[Path], settings: str, version: int, make: Callable[[], Arrays]) -> Arrays:
    """What `make()` returns, from the cache's folder `room`, or into it where it can be written.

    It is made anew where one of the files that it is made of has another size or time, or `version` of `make` changes.
    `settings` say what else it depends on; it may depend on no file.
    """
    stats = [file.stat() for file in files]
    state = "-".join([str(version), *(f"{stat.st_size}-{stat.st_mtime_ns}" for stat in stats)])
    if len(files) > 1:  # The name would be too long otherwise.
        state = hashlib.sha256(state.encode()).hexdigest()[:16]
    source = hashlib.sha256("|".join([*map(str, files), settings]).encode()).hexdigest()[:16]
    parts = (room, f"{files[0].stem if files else 'made'}-{source}")
    parent = cache().joinpath(*parts)
    if (arrays := _load(parent / state)) is not None:
        return arrays
    try:
        private_folder(*parts)
        lock = FileLock(parent / ".lock", fallback_to_soft=False).acquire()
    except OSError:  # There is no place that can be written or locked.
        return make()
    with lock:
        if (arrays := _load(parent / state)) is not None:  # by a process that had the lock before
            return arrays
        arrays = make()
        return arrays if not _save(arrays, parent / state) else _load(parent / state) or arrays


def _load(folder: Path) -> Arrays | None:
    """Arrays that `_save` wrote; None where there are none, where they are damaged, or where others can have."""
    if not is_trusted(folder):
        return None
    try:
        files = {file.stem: file for file in folder.glob("*.npy")}
        return {
            name: np.load(file, mmap_mode="r" if file.stat().st_size >= MAPPED_BYTES else None)
            for name, file in files.items()
        } or None
    except (OSError, ValueError, EOFError):
        return None


def _save(arrays: Arrays, folder: Path) -> bool:
    """Write all arrays, or none, in place of those of an earlier state of the same file."""
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True) as name:
            temporary = Path(name) / "arrays"
            temporary.mkdir()
            for key, array in arrays.items():
                np.save(temporary / f"{key}.npy", array, allow_pickle=False)
            for stale in folder.parent.iterdir():
                if stale.is_dir() and stale != Path(name):
                    shutil.rmtree(stale, ignore_errors=True)
            temporary.rename(folder)
    except OSError:  # a full disk
        return False
    return True
