"""Caches named arrays in $TIMETRIAL_CACHE (default: $XDG_CACHE_HOME/timetrial, else ~/.cache/timetrial)."""

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
from trainers.data.cached.folders import turn

Arrays = dict[str, np.ndarray]

MAPPED_BYTES = 1 << 20  # Arrays of this size and more are memory-mapped, so a machine's processes share them.
SIZES = "sizes.json"  # size of each file; written last, so that missing or truncated files are detected


def cached_arrays(room: str, files: Sequence[Path], settings: str, version: int, make: Callable[[], Arrays]) -> Arrays:
    """Return the arrays of `make()`, from the cache's folder `room` if they are there; else make and cache them.

    They are made anew if `settings` or the `version` of `make` change, if one of `files` has another size or time, or
    if the cached arrays are damaged or could be another user's. `files` may be empty. If several processes need the
    arrays at once, one makes them and the others wait, for up to turn.WAIT_SEC. If the cache cannot be written, the
    arrays are not cached.
    """
    stats = [file.stat() for file in files]
    state = "-".join([str(version), *(f"{stat.st_size}-{stat.st_mtime_ns}" for stat in stats)])
    if len(files) > 1:  # Otherwise the name would be too long.
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
        except OSError:  # The cache cannot be written or locked.
            return make()
        if (arrays := _load(parent / state)) is not None:  # Another process has made them meanwhile.
            return arrays
        arrays = make()
        saved = lock is not None and _save(arrays, parent / state)
        return (_load(parent / state) if saved else None) or arrays


def _load(folder: Path) -> Arrays | None:
    """Return arrays that `_save` wrote; None if they are missing, damaged, or could be another user's."""
    if not is_trusted(folder) or not folder.exists():
        return None
    try:
        sizes = json.loads((folder / SIZES).read_text())
        actual = {file.name: file.stat().st_size for file in folder.glob("*.npy")}
        if not sizes or actual != sizes:
            raise ValueError(f"it holds {actual}, expected {sizes}")
        return {
            name.removesuffix(".npy"): np.load(folder / name, mmap_mode="r" if size >= MAPPED_BYTES else None)
            for name, size in sizes.items()
        }
    except (OSError, ValueError, EOFError) as error:
        print(f"{folder}: is damaged ({error}); it is made anew", file=sys.stderr)
        return None


def _save(arrays: Arrays, folder: Path) -> bool:
    """Write all arrays or none, replace those of an earlier state, and return whether that worked."""
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True) as name:
            temporary = Path(name) / "arrays"
            temporary.mkdir()
            for key, array in arrays.items():
                with (temporary / f"{key}.npy").open("wb") as file:
                    np.save(file, array, allow_pickle=False)
                    file.flush()
                    os.fsync(file.fileno())  # After a power failure there must be no name without its content.
            sizes = {file.name: file.stat().st_size for file in temporary.iterdir()}
            (temporary / SIZES).write_text(json.dumps(sizes))
            for stale in folder.parent.iterdir():
                if stale.is_dir() and stale != Path(name):
                    shutil.rmtree(stale, ignore_errors=True)
            temporary.rename(folder)
    except OSError:  # a full disk
        return False
    return True
