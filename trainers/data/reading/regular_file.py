"""Opens files that anybody may have put in a dataset's folder, where a pipe would be waited for without end."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path


def opened(path: Path | str) -> BufferedReader:
    """The bytes of a regular file, which links may lead to. Raises OSError for a pipe, a device or a folder."""
    return open(path, "rb", opener=_regular)


def _regular(path: str, flags: int) -> int:
    # Without O_NONBLOCK the opening of a pipe waits for its other end; of files it changes nothing.
    number = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "is no regular file", path)
    return number
