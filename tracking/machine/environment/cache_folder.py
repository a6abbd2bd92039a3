"""The user's private cache: environments, images, compiled code and data that are made once.

Files that are executed or loaded must belong to this user or root. Other users must not be able to write them,
or a folder on the way to them.
"""

from __future__ import annotations

import atexit
import errno
import functools
import getpass
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from conf.schema import ConfigError
from tracking.base.paths import with_home
from tracking.base.safe_text import one_line
from tracking.machine.environment import written_by_others

VARIABLE = "TIMETRIAL_CACHE"
INDUCTOR = "TORCHINDUCTOR_CACHE_DIR"
COMPILED = "compiled"  # folder of the code that workers compile and execute
# Folders whose files this process has all checked, with inode and change time.
_whole: set[tuple[Path, int, int]] = set()


def cache() -> Path:
    """$TIMETRIAL_CACHE, else timetrial in $XDG_CACHE_HOME or in ~/.cache; it may not exist yet.

    A user without a home gets a temporary folder, which is removed at the end of the process.
    """
    if folder := os.environ.get(VARIABLE):
        return with_home(folder)
    from platformdirs import user_cache_path  # Only here: an environment without a cache may lack it.

    try:
        return user_cache_path("timetrial", appauthor=False)
    except RuntimeError:  # The user has no home.
        return _scratch()


def private_folder(*parts: str) -> Path:
    """A folder of the cache, created if missing, which only this user can open. Raises OSError with a message."""
    path = cache()
    path.parent.mkdir(parents=True, exist_ok=True)
    for part in ("", *parts):
        path = path / part
        path.mkdir(mode=0o700, exist_ok=True)
    if reason := distrust(path, whole=False):
        raise PermissionError(errno.EACCES, f"not used, since {reason}", str(path))
    return path


def check_cache() -> None:
    """Raise ConfigError for a home of nobody, or if others may have written to the cache or to its compiled code."""
    if str(cache()).startswith("~"):
        raise ConfigError(f"{VARIABLE}={cache()}: no user here has this home. Next: give the path in full")
    if reason := distrust(cache(), whole=False):
        raise ConfigError(
            f"cache: not used, since {reason}. Next: change that, or set {VARIABLE} to a folder of your own"
        )
    if reason := distrust(cache() / COMPILED):
        raise ConfigError(
            f"cache: not used, since {reason}. Next: remove {cache() / COMPILED}; its code is then compiled anew"
        )


def is_trusted(path: Path) -> bool:
    """Whether a path in the cache can be loaded or executed, or is missing. Prints why not, once."""
    reason = distrust(path)
    if reason:
        _say(f"{path}: not used, since {reason}. Next: remove it; it is then made anew")
    return not reason


def distrust(path: Path, whole: bool = True) -> str:
    """Why another user, except root, may have written to a path in the cache, or above it; empty if none may.

    `whole`: check every file in a folder, too.
    """
    root = cache()
    try:
        reachable = written_by_others.check_way(root)
        reachable = _check_root(root) and reachable
        inner = [place for place in path.parents if place.is_relative_to(root) and place != root]
        for place in reversed(inner):
            reachable = written_by_others.check_place(place, reachable)
        if path.is_relative_to(root) and path != root:
            written_by_others.check_place(path, reachable)
            _check_inside(path, reachable) if whole else None
    except written_by_others.OthersWriteError as error:
        return str(error)
    return ""


def _check_root(root: Path) -> bool:
    """Check the cache's own folder. Returns whether others can enter it, which is allowed only if it is root's.

    If others can enter a user's cache, they may have been able to write to it before. Raises OthersWriteError.
    """
    real = root.resolve()
    written_by_others.check_place(real, reachable=False)  # its owner
    try:
        facts = real.stat()
    except OSError:
        return False
    closed = written_by_others.WRITE | (written_by_others.ENTER if facts.st_uid else 0)
    if facts.st_mode & closed:
        can = "write to" if facts.st_mode & written_by_others.WRITE else "enter"
        raise written_by_others.OthersWriteError(
            f"others can {can} {real} (mode {stat.S_IMODE(facts.st_mode):o}): `chmod 700 {real}`"
        )
    return bool(facts.st_mode & written_by_others.ENTER)


def _check_inside(path: Path, reachable: bool) -> None:
    """Check every file below a path, once in a process: 50,000 files of an environment take half a second."""
    try:
        facts = path.lstat()
    except OSError:
        return
    known = (path, facts.st_ino, facts.st_ctime_ns)
    if known not in _whole:
        written_by_others.check_tree(path, reachable)
        _whole.add(known)


def compiler_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variable with the folder of PyTorch's compiled code; empty if its default folder belongs to this user alone.

    Another user may have made the default folder, which is in /tmp, before.
    """
    if environ.get(INDUCTOR):
        return {}
    try:
        default_folder = _inductors_own()
        default_folder.mkdir(mode=0o700, exist_ok=True)
        facts = default_folder.lstat()
        if stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not written_by_others.others_write(facts):
            return {}
        _say(f"{default_folder}: not used, since others can write to it; PyTorch's compiled code goes to {cache()}")
    except (OSError, KeyError):  # a user without a name, or a full disk
        pass
    return {INDUCTOR: str(cache() / COMPILED / "inductor")}


def compiler_folders(environ: Mapping[str, str]) -> dict[str, Path]:
    """The folders of a worker's compiled code, by compiler; they may not exist yet.

    `triton` has kernels that Inductor did not make, such as our own. Raises ConfigError if others may have written to a
    folder, or to one on the way to it, since its content is executed.
    """
    variables = {**environ, **compiler_variables(environ)}
    triton = Path(
        variables.get("TRITON_CACHE_DIR") or Path(variables.get("TRITON_HOME") or Path.home(), ".triton/cache")
    )
    folders = {"inductor": inductor_folder(variables).absolute(), "triton": triton.absolute()}
    for folder in folders.values():
        try:
            written_by_others.check_tree(folder, written_by_others.check_way(folder))
        except written_by_others.OthersWriteError as why:
            raise ConfigError(
                f"{folder}: not used, since {why}. Next: remove it; its code is then compiled anew"
            ) from None
    return folders


def inductor_folder(environ: Mapping[str, str]) -> Path:
    """The folder of PyTorch's compiled code in a process with these variables. Raises KeyError and OSError."""
    return Path(environ[INDUCTOR]) if environ.get(INDUCTOR) else _inductors_own()


def _inductors_own() -> Path:
    """PyTorch's default folder, as in torch/_inductor/runtime/cache_dir_utils.py. Raises KeyError and OSError."""
    user = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
    return Path(tempfile.gettempdir()) / f"torchinductor_{user}"


@functools.cache
def _scratch() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="timetrial-"))
    _scratches.append((folder, os.getpid()))
    atexit.register(remove_scratch)
    return folder


_scratches: list[tuple[Path, int]] = []  # with the process that made it


def remove_scratch() -> None:
    """Remove this process's substitute for a cache, at exit or before an exit that skips Python's exit handlers."""
    for folder, pid in _scratches:
        if os.getpid() == pid:  # not at the end of a forked child
            shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def _say(words: str) -> None:
    print(one_line(words), file=sys.stderr, flush=True)
