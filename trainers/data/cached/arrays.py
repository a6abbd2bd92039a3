"""Named arrays in $TIMETRIAL_CACHE (default: $XDG_CACHE_HOME/timetrial, else ~/.cache/timetrial)."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from tracking.machine.environment import cache, is_trusted, private_folder
from trainers.data.cached.turn import turn

Arrays = dict[str, np.ndarray]

MAPPED_BYTES = 1 << 20  # arrays from this size on are mapped into memory, and so shared by a machine's processes
SIZES = "sizes.json"  # The bytes of each file, written last: a lost or shortened file shows.


def cached_arrays(room: str, files: Sequence[Path], settings: str, version: int, make: Callable[[], Arrays]) -> Arrays:
    """What `make()` returns, from the cache's folder `room`, or into it where it can be written.

    It is made anew where one of the files that it is made of has another size or time, or `version` of `make` changes,
    and where what is kept is damaged or can be another user's, which is said. `settings` say what else it depends on;
    it may depend on no file. Of processes that ask at once one makes it; the others wait, for turn.WAIT_SEC at most.
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
    with ExitStack() as stack:
        try:
            private_folder(*parts)
            lock = stack.enter_context(turn(parent / ".lock"))
        except OSError:  # There is no place that can be written or locked.
            return make()
        if (arrays := _load(parent / state)) is not None:  # by a process whose turn was before
            return arrays
        arrays = make()
        saved = lock is not None and _save(arrays, parent / state)
        return (_load(parent / state) if saved else None) or arrays


def _load(folder: Path) -> Arrays | None:
    """Arrays that `_save` wrote; None where there are none, where they are damaged, or where others can have."""
    if not is_trusted(folder) or not folder.exists():
        return None
    try:
        sizes = json.loads((folder / SIZES).read_text())
        there = {file.name: file.stat().st_size for file in folder.glob("*.npy")}
        if not sizes or there != sizes:
            raise ValueError(f"it holds {there}, expected {sizes}")
        return {
            name.removesuffix(".npy"): np.load(folder / name, mmap_mode="r" if size >= MAPPED_BYTES else None)
            for name, size in sizes.items()
        }
    except (OSError, ValueError, EOFError) as error:
        print(f"{folder}: not whole, and made anew ({error})", file=sys.stderr)
        return None


def _save(arrays: Arrays, folder: Path) -> bool:
    """Write all arrays, or none, in place of those of an earlier state of the same file."""
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True) as name:
            temporary = Path(name) / "arrays"
            temporary.mkdir()
            for key, array in arrays.items():
                with (temporary / f"{key}.npy").open("wb") as file:
                    np.save(file, array, allow_pickle=False)
                    file.flush()
                    os.fsync(file.fileno())  # A machine that fails must not leave the name without the content.
            sizes = {file.name: file.stat().st_size for file in temporary.iterdir()}
            (temporary / SIZES).write_text(json.dumps(sizes))
            for stale in folder.parent.iterdir():
                if stale.is_dir() and stale != Path(name):
                    shutil.rmtree(stale, ignore_errors=True)
            temporary.rename(folder)
    except OSError:  # a full disk
        return False
    return True
