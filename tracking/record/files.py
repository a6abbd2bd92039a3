"""Files of a run's folder, opened so that nothing outside of it is read or written.

A folder may have been made by somebody else, and a name in it may be a link to any file of this user. So a file is
opened relative to its folder, neither of the two by way of a link, and only if it is a regular file: a pipe would be
waited for without end. The folders above may be reached by links. Hard links to files of others are the kernel's to
refuse (fs.protected_hardlinks).
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

MOST_BYTES = 134_217_728  # of a file that is read as a whole
FLAGS = {
    "r": os.O_RDONLY,
    "r+": os.O_RDWR,
    "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "a+": os.O_RDWR | os.O_CREAT | os.O_APPEND,
}


def descriptor(path: Path, flags: int, mode: int = 0o600) -> int:
    """An open descriptor of a regular file. Raises OSError that names it, in words where it is a link."""
    with _folder(path.parent) as folder, _named(path):
        # Without O_NONBLOCK the opening of a pipe waits for its other end; of files it changes nothing.
        number = os.open(path.name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "is no regular file", str(path))
    return number


def opened(path: Path, mode: str = "r", buffering: int = -1) -> IO[Any]:
    """The file as `open` gives it, with b for bytes and else as UTF-8. Modes: r, r+, w, x and a+."""
    number = descriptor(path, FLAGS[mode.replace("b", "")], 0o666)
    return os.fdopen(number, mode, buffering, encoding=None if "b" in mode else "utf-8")


def read_text(path: Path) -> str:
    """Raises OSError for a file that is larger than any of ours, too: one that is all holes takes no room on a disk."""
    with opened(path) as file:
        if os.fstat(file.fileno()).st_size > MOST_BYTES:
            raise OSError(errno.EINVAL, f"is larger than {MOST_BYTES} bytes", str(path))
        return str(file.read(MOST_BYTES))


def exists(path: Path) -> bool:
    """Whether there is anything of this name: a link too, which cannot be opened."""
    return os.path.lexists(path)


def names(folder: Path) -> list[str]:
    """The names of the regular files in a folder, sorted; none where there is no such folder."""
    with suppress(FileNotFoundError), _folder(folder) as number, os.scandir(number) as entries:
        return sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
    return []


def folders(folder: Path, name: str) -> list[Path]:
    """The folders in a folder that hold something of this name, sorted; links to folders are none."""
    with _folder(folder) as number, os.scandir(number) as entries:
        inner_folders = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    return [folder / inner for inner in inner_folders if exists(folder / inner / name)]


def remove(path: Path) -> None:
    """Delete a file, or the link of that name, where there is one."""
    with suppress(FileNotFoundError), _folder(path.parent) as folder:
        os.unlink(path.name, dir_fd=folder)


def replace(path: Path, name: str) -> None:
    """Give a file another name in its folder."""
    with _folder(path.parent) as folder:
        os.replace(path.name, name, src_dir_fd=folder, dst_dir_fd=folder)


@contextmanager
def lent(path: Path) -> Iterator[Path]:
    """A path of the same last name by which other programs' code reads this very file, whatever becomes of its name."""
    with opened(path, "rb") as file, tempfile.TemporaryDirectory() as scratch:
        shown = Path(scratch) / path.name
        shown.symlink_to(f"/proc/self/fd/{file.fileno()}")
        yield shown


@contextmanager
def _folder(path: Path) -> Iterator[int]:
    with _named(path):
        number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield number
    finally:
        os.close(number)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors with the whole path in them, and that of a link in words."""
    try:
        yield
    except OSError as error:
        # Of a link in place of a folder Linux says that it is no folder.
        words = "is a link, which is not followed" if path.is_symlink() else os.strerror(error.errno or 0)
        raise OSError(error.errno, words, str(path)) from None
