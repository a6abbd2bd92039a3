"""Opens files in a dataset's folder and refuses pipes, for which an open would wait without end."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path


def opened(path: Path | str) -> BufferedReader:
    """Open a regular file, or a link to one, for reading. Raises OSError for a pipe, a device or a folder."""
    return open(path, "rb", opener=_regular)


def read_bytes(path: Path | str) -> bytes:
    """Return the content of a regular file. Raises OSError, as `opened` does."""
    with opened(path) as file:
        return file.read()


def _regular(path: str, flags: int) -> int:
    # Without O_NONBLOCK, opening a pipe waits for its other end; for files it has no effect.
    number = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "is not a regular file", path)
    return number
