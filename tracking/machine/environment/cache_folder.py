"""The user's cache: environments, images, compiled steps and data that were made once. It is this user's alone.

What is executed or loaded out of it has to belong to this user or to root, and nobody else may be able to write it, or
a folder on the way to it.
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
from tracking.base.safe_text import one_line
from tracking.machine.environment import written_by_others

VARIABLE = "TIMETRIAL_CACHE"
INDUCTOR = "TORCHINDUCTOR_CACHE_DIR"
COMPILED = "compiled"  # the folder of what workers compile, and execute
# Folders in which this process has looked at every file. What is made anew in one's place has another time.
_whole: set[tuple[Path, int, int]] = set()


def cache() -> Path:
    """$TIMETRIAL_CACHE, else timetrial in $XDG_CACHE_HOME or in ~/.cache; it need not be there.

    A user without a home gets a folder of this process's, which ends with it.
    """
    if own := os.environ.get(VARIABLE):
        return Path(own).expanduser()
    from platformdirs import user_cache_path  # Only here: an environment that needs no cache need not have it.

    try:
        return user_cache_path("timetrial", appauthor=False)
    except RuntimeError:  # The user has no home.
        return _scratch()


def private_folder(*parts: str) -> Path:
    """A folder of the cache, made where it is missing, and open to nobody else. Raises OSError, in words."""
    path = cache()
    path.parent.mkdir(parents=True, exist_ok=True)
    for part in ("", *parts):
        path = path / part
        path.mkdir(mode=0o700, exist_ok=True)
    if why := distrust(path, whole=False):
        raise PermissionError(errno.EACCES, f"not used, since {why}", str(path))
    return path


def check_cache() -> None:
    """Raise ConfigError for a cache that others can have written to, and for compiled steps that they have."""
    if why := distrust(cache(), whole=False):
        raise ConfigError(f"cache: not used, since {why}; mend that, or set {VARIABLE} to a folder of your own")
    if why := distrust(cache() / COMPILED):
        raise ConfigError(f"cache: not used, since {why}; remove {cache() / COMPILED}: steps are compiled anew")


def is_trusted(path: Path) -> bool:
    """Whether what is at a path in the cache, or nothing, can be loaded or executed. Says why not, once."""
    why = distrust(path)
    if why:
        _say(f"{path}: not used, since {why}; remove it, and it is made anew")
    return not why


def distrust(path: Path, whole: bool = True) -> str:
    """Why others can have written what is at a path in the cache, or above it; empty where only this user and root can.

    `whole`: with every file in it, if it is a folder.
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
    except written_by_others.OthersWriteError as why:
        return str(why)
    return ""


def _check_root(root: Path) -> bool:
    """Where others can enter a user's cache they may have been able to write before. Root's is everybody's to read."""
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
    """An environment has 50,000 files, which take half a second: a process looks at them once."""
    try:
        facts = path.lstat()
    except OSError:
        return
    known = (path, facts.st_ino, facts.st_ctime_ns)
    if known not in _whole:
        written_by_others.check_tree(path, reachable)
        _whole.add(known)


def compiler_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Where PyTorch keeps what it compiles, and executes it: its own folder, unless somebody else made that first."""
    if environ.get(INDUCTOR):
        return {}
    try:
        own = _inductors_own()
        own.mkdir(mode=0o700, exist_ok=True)
        facts = own.lstat()
        if stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & written_by_others.WRITE:
            return {}
        _say(f"{own}: not used, since it is not yours alone; PyTorch keeps what it compiles in {cache()}")
    except (OSError, KeyError):  # A user without a name, or a disk without room.
        pass
    return {INDUCTOR: str(cache() / COMPILED / "inductor")}


def compiler_folders(environ: Mapping[str, str]) -> dict[str, Path]:
    """Where a worker of this Python's stack keeps what was compiled, by compiler; a folder need not be there.

    `triton` is of kernels that were not made by Inductor, such as our own. Raises ConfigError where others can have
    written to a folder, or to one on the way to it: what is in it is executed.
    """
    given = {**environ, **compiler_variables(environ)}
    triton = Path(given.get("TRITON_CACHE_DIR") or Path(given.get("TRITON_HOME") or Path.home(), ".triton/cache"))
    folders = {"inductor": inductor_folder(given).absolute(), "triton": triton.absolute()}
    for folder in folders.values():
        try:
            written_by_others.check_tree(folder, written_by_others.check_way(folder))
        except written_by_others.OthersWriteError as why:
            raise ConfigError(f"{folder}: not used, since {why}; remove it: steps are compiled anew") from None
    return folders


def inductor_folder(environ: Mapping[str, str]) -> Path:
    """Where PyTorch of a process with these variables keeps what it compiles. Raises KeyError, OSError."""
    return Path(environ[INDUCTOR]) if environ.get(INDUCTOR) else _inductors_own()


def _inductors_own() -> Path:
    """PyTorch's default, as torch/_inductor/runtime/cache_dir_utils.py has it. Raises KeyError, OSError."""
    user = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
    return Path(tempfile.gettempdir()) / f"torchinductor_{user}"


@functools.cache
def _scratch() -> Path:
    folder, pid = Path(tempfile.mkdtemp(prefix="timetrial-")), os.getpid()

    def remove() -> None:
        if os.getpid() == pid:  # A child that was forked ends as well.
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


@functools.cache
def _say(words: str) -> None:
    print(one_line(words), file=sys.stderr, flush=True)
