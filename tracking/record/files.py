"""Opens files of a run's folder, and refuses to read or write outside it.

Another user may have made the folder, and a name in it may link to any file of this user. So a file is opened relative
to its folder, without following links at either, and only if it is a regular file: a pipe would block. Folders further
up may be links. The kernel refuses hard links to other users' files (fs.protected_hardlinks).
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

MAX_BYTES = 134_217_728  # limit for a file that is read whole
FLAGS = {
    "r": os.O_RDONLY,
    "r+": os.O_RDWR,
    "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "a+": os.O_RDWR | os.O_CREAT | os.O_APPEND,
}


def descriptor(path: Path, flags: int, mode: int = 0o600) -> int:
    """An open descriptor of a regular file. Raises OSError that names the path, and says so if it is a link."""
    with _open_folder(path.parent) as folder, errors_with_path(path):
        # Without O_NONBLOCK, opening a pipe waits for its other end. Regular files ignore it.
        number = os.open(path.name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    return number


def opened(path: Path, mode: str = "r", buffering: int = -1) -> IO[Any]:
    """A file object as from `open`, for bytes with b, else as UTF-8. Modes: r, r+, w, x and a+. Raises OSError."""
    number = descriptor(path, FLAGS[mode.replace("b", "")], 0o666)
    return os.fdopen(number, mode, buffering, encoding=None if "b" in mode else "utf-8")


def read_text(path: Path) -> str:
    """The text of a file. Raises OSError, also above MAX_BYTES: a sparse file may be huge on a small disk."""
    with opened(path) as file:
        if os.fstat(file.fileno()).st_size > MAX_BYTES:
            raise OSError(errno.EINVAL, f"is larger than {MAX_BYTES} bytes", str(path))
        with errors_with_path(path):
            return str(file.read(MAX_BYTES))


def exists(path: Path) -> bool:
    """Whether anything has this name, including a link, which `opened` refuses."""
    return os.path.lexists(path)


def names(folder: Path) -> list[str]:
    """The names of the regular files in a folder, sorted; empty if the folder is missing."""
    with suppress(FileNotFoundError), _open_folder(folder) as number, os.scandir(number) as entries:
        return sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
    return []


def folders(folder: Path, name: str) -> list[Path]:
    """The folders in a folder that contain this name, sorted, without links to folders."""
    with _open_folder(folder) as number, os.scandir(number) as entries:
        inner_folders = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    return [folder / inner for inner in inner_folders if exists(folder / inner / name)]


def remove(path: Path) -> None:
    """Delete a file or link if it exists."""
    with suppress(FileNotFoundError), _open_folder(path.parent) as folder, errors_with_path(path):
        os.unlink(path.name, dir_fd=folder)


def replace(path: Path, name: str) -> None:
    """Rename a file within its folder."""
    with _open_folder(path.parent) as folder:
        os.replace(path.name, name, src_dir_fd=folder, dst_dir_fd=folder)


@contextmanager
def pinned(path: Path) -> Iterator[Path]:
    """A path for other code to read exactly this file, even if another one replaces it. The file name is the same."""
    with opened(path, "rb") as file, tempfile.TemporaryDirectory() as scratch:
        link = Path(scratch) / path.name
        link.symlink_to(f"/proc/self/fd/{file.fileno()}")
        yield link


@contextmanager
def _open_folder(path: Path) -> Iterator[int]:
    with errors_with_path(path):
        number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield number
    finally:
        os.close(number)


@contextmanager
def errors_with_path(path: Path) -> Iterator[None]:
    """Raise OSErrors again with the whole path, which those of an open file lack, and with a message for a link."""
    try:
        yield
    except OSError as error:
        # Linux answers ENOTDIR for a symlink where a folder is expected.
        words = "is a link, which is not followed" if path.is_symlink() else os.strerror(error.errno or 0)
        raise OSError(error.errno, words, str(path)) from None
