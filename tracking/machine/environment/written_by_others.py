"""Checks whether users other than this one and root may have written a file.

A file is safe to execute or load if the file, everything below it and every folder above it are safe.
"""

from __future__ import annotations

import functools
import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

WRITE = stat.S_IWGRP | stat.S_IWOTH
ENTER = stat.S_IRWXG | stat.S_IRWXO
MOST_LINKS = 40  # the kernel's limit for links on the way to a file (path_resolution(7))


class OthersWriteError(Exception):
    """Says what others can write to."""


def check_way(path: Path) -> bool:
    """Check every folder above a path, since a user who can write to one can replace everything below it.

    Returns whether others can enter all of these folders. Raises OthersWriteError. Missing folders are safe.
    """
    reachable = True
    for place in _way(path.absolute()):
        if (facts := _facts(place)) is None:
            return reachable
        if facts.st_uid not in _safe_owners():
            raise OthersWriteError(f"{place}, on the way to it, belongs to {_user(facts.st_uid)}")
        if not stat.S_ISDIR(facts.st_mode):
            continue
        # In a sticky folder, such as /tmp, users cannot move or remove other users' files.
        if reachable and others_write(facts) and not facts.st_mode & stat.S_ISVTX:
            raise OthersWriteError(
                f"others can write to {place} (mode {stat.S_IMODE(facts.st_mode):o}), which is on the way to it"
            )
        reachable = reachable and bool(facts.st_mode & ENTER)
    return reachable


def link_of_others(path: Path) -> Path | None:
    """A link of another user on the way to a path, or at the path; None without one.

    That user decides where the path leads. Raises OthersWriteError for a folder that cannot be read.
    """
    for place in (*_way(path.absolute()), path.absolute()):
        facts = _facts(place)
        if facts is not None and stat.S_ISLNK(facts.st_mode) and facts.st_uid not in _safe_owners():
            return place
    return None


def check_place(place: Path, reachable: bool) -> bool:
    """Check the owner of a file or folder and, if others can reach it, its mode; not its content.

    Returns whether others can reach its content. Raises OthersWriteError.
    """
    facts = _facts(place)
    return facts is not None and _check(str(place), facts, reachable)


def check_tree(place: Path, reachable: bool = True) -> None:
    """Check a file, or a folder with every file in it. Raises OthersWriteError."""
    facts = _facts(place)
    if facts is None:
        return
    inside = _check(str(place), facts, reachable)
    folders = [(str(place), inside)] if stat.S_ISDIR(facts.st_mode) else []
    while folders:
        folder, inside = folders.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    facts = entry.stat(follow_symlinks=False)
                    deeper = _check(entry.path, facts, inside)
                    if stat.S_ISDIR(facts.st_mode):
                        folders.append((entry.path, deeper))
        except FileNotFoundError:  # Another process of this user has removed it.
            continue
        except OSError as error:
            raise OthersWriteError(f"{folder}: {error.strerror}") from None


def _check(place: str, facts: os.stat_result, reachable: bool) -> bool:
    if facts.st_uid not in (os.geteuid(), 0):
        raise OthersWriteError(f"{place} belongs to {_user(facts.st_uid)}")
    if reachable and others_write(facts) and not stat.S_ISLNK(facts.st_mode):
        raise OthersWriteError(f"others can write to {place} (mode {stat.S_IMODE(facts.st_mode):o})")
    return reachable and bool(facts.st_mode & ENTER)


def _way(path: Path, num_links: int = 0) -> Iterator[Path]:
    """The folders and links on the way to a path, from the root on, including those behind links."""
    place = Path(path.anchor)
    for part in path.parts[1:]:
        yield place
        place = place.parent if part == ".." else place / part
        facts = _facts(place)
        if facts is not None and stat.S_ISLNK(facts.st_mode) and num_links < MOST_LINKS:
            yield place
            yield from _way(place.parent / place.readlink(), num_links + 1)
            place = place.resolve()


def _facts(place: Path) -> os.stat_result | None:
    try:
        return place.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise OthersWriteError(f"{place}: {error.strerror}") from None


def others_write(facts: os.stat_result) -> bool:
    """Whether users other than this one may write; a group that has only this user may."""
    if facts.st_mode & stat.S_IWOTH:
        return True
    return bool(facts.st_mode & stat.S_IWGRP) and not _is_own_group(facts.st_gid)


def _is_own_group(gid: int) -> bool:
    """Whether the group has only this user, as Debian and Red Hat give each user, with a umask of 002."""
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _safe_owners() -> set[int]:
    """Owners of folders above that are safe. In a namespace without root, root's folders belong to overflowuid."""
    return {os.geteuid(), 0} | _unknown_user()


@functools.cache
def _unknown_user() -> set[int]:
    try:
        ranges = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
        if any(outside == "0" for _, outside, _ in ranges):
            return set()
        return {int(Path("/proc/sys/kernel/overflowuid").read_text())}
    except (OSError, ValueError):
        return set()


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"
