"""The user's cache: environments, images, compiled steps and data that were made once. It is this user's alone.

What is executed or loaded out of it has to belong to this user or to root, and nobody else may be able to write it.
"""

from __future__ import annotations

import atexit
import errno
import functools
import getpass
import os
import pwd
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from conf.schema import ConfigError
from tracking.base.safe_text import one_line

VARIABLE = "TIMETRIAL_CACHE"
INDUCTOR = "TORCHINDUCTOR_CACHE_DIR"
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


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
    if why := distrust(path):
        raise PermissionError(errno.EACCES, f"not used, since {why}", str(path))
    return path


def check_cache() -> None:
    """Raise ConfigError for a cache that others can have written to."""
    if why := distrust(cache()):
        raise ConfigError(
            f"cache: not used, since {why}; remove what is not yours and `chmod 700` it, or set {VARIABLE} to a folder"
            " of your own"
        )


def is_trusted(path: Path) -> bool:
    """Whether what is at a path in the cache, or nothing, can be loaded or executed. Says why not, once."""
    why = distrust(path)
    if why:
        _say(f"{path}: not used, since {why}; remove it, and it is made anew")
    return not why


def distrust(path: Path) -> str:
    """Why others can have written what is at a path in the cache; empty where only this user and root can."""
    root, reachable = cache(), True
    inner = [place for place in (path, *path.parents) if place.is_relative_to(root) and place != root]
    for place in (root, *reversed(inner)):
        try:
            facts = place.stat() if place == root else place.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except OSError as error:
            return f"{place}: {error.strerror}"
        if facts.st_uid not in (os.geteuid(), 0):
            return f"{place} belongs to {_user(facts.st_uid)}"
        if reachable and facts.st_mode & OTHERS_WRITE and not stat.S_ISLNK(facts.st_mode):
            return f"others can write to {place} (mode {stat.S_IMODE(facts.st_mode):o})"
        # What lies in a folder that nobody else can enter is out of their reach, whatever its own mode.
        reachable = reachable and bool(facts.st_mode & (stat.S_IRWXG | stat.S_IRWXO))
    return ""


def compiler_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Where PyTorch keeps what it compiles, and executes it: its own folder, unless somebody else made that first."""
    if environ.get(INDUCTOR):
        return {}
    try:
        user = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
        own = Path(tempfile.gettempdir()) / f"torchinductor_{user}"  # as torch/_inductor/runtime/cache_dir_utils.py
        own.mkdir(mode=0o700, exist_ok=True)
        facts = own.lstat()
        if stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & OTHERS_WRITE:
            return {}
        _say(f"{own}: not used, since it is not yours alone; PyTorch keeps what it compiles in {cache()}")
    except (OSError, KeyError):  # A user without a name, or a disk without room.
        pass
    return {INDUCTOR: str(cache() / "compiled" / "inductor")}


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


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"
