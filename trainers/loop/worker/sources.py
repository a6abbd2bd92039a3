"""Detects changes of source files, the user's and our own, since this process imported them."""

from __future__ import annotations

import site
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path

from tracking.machine.environment import processes

# Folders of Python and of installed packages, which nobody edits during a sweep.
INSTALLED = {
    Path(folder)
    for folder in (
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *site.getsitepackages(), site.getusersitepackages(),
    )
}  # fmt: skip


@cache  # Modules of one package have the same path.
def is_installed(path: str) -> bool:
    """Return whether a path belongs to Python or to an installed package."""
    return any(Path(path).is_relative_to(folder) for folder in INSTALLED)


class Sources:
    """The source files that this process has imported, except installed ones, with their modification times.

    Files imported before this object was made count as changed if they were modified after `began_ns`.
    """

    def __init__(self, began_ns: int = sys.maxsize) -> None:
        self._times: dict[str, int] = {}
        self._note_imported()
        now = time.time_ns()
        self._edited = any(began_ns <= changed <= now for changed in self._times.values())

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note the files that the block imports, each before it is read, so that an edit during the import counts."""
        sys.meta_path.insert(0, self)
        try:
            yield
        finally:
            sys.meta_path.remove(self)
            self._note_imported()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        """Note the file of a module that Python is about to import; return None, so that other finders import it."""
        if path is not None and all(map(is_installed, path)):
            return  # Most modules are in installed packages: this saves a second search for each.
        spec = PathFinder.find_spec(name, path)
        if spec and spec.origin:
            self._note(spec.origin)

    def have_changed(self) -> bool:
        """Return whether a noted file was changed or removed."""
        return self._edited or any(time_of(file) != time for file, time in self._times.items())

    def _note_imported(self) -> None:
        for module in list(sys.modules.values()):
            if file := getattr(module, "__file__", None):
                self._note(file)

    def _note(self, file: str) -> None:
        if file not in self._times and not is_installed(file) and (time := time_of(file)):
            self._times[file] = time


def time_of(file: str) -> int:
    """Return a file's modification time in nanoseconds; 0 for a missing file."""
    with suppress(OSError):
        return Path(file).stat().st_mtime_ns
    return 0


def begun_ns() -> int:
    """Return when this process began, by the clock of files: after its start, and before it read a source of ours."""
    begun = processes.begun() + 1 / processes.TICKS_PER_SEC  # The kernel rounds the start down.
    return time.time_ns() - round(1e9 * (time.monotonic() - begun))
