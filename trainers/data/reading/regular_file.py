"""Opens files in a dataset's folder: refuses pipes, for which an open would wait without end, and text not in UTF-8."""

from __future__ import annotations

import errno
import os
import shlex
import stat
from io import BufferedReader
from pathlib import Path

from conf.schema import ConfigError

HEAD_BYTES = 4096
MARKS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
MOST_ZEROS = 0.1  # share of a head's bytes; in UTF-16, Western text has a zero byte in each letter


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


def check_encoding(path: Path | str) -> None:
    """Raise ConfigError if the file's beginning is UTF-16 or UTF-32, which may also be valid UTF-8."""
    if encoding_of(path):
        raise ConfigError(f"{path}: is not UTF-8. {conversion(path)}")


def conversion(path: Path | str) -> str:
    """Return what to type for a file that is not in UTF-8, with the encoding that its beginning looks like."""
    encoding = encoding_of(path)
    looks = f"It looks like {encoding}. " if encoding else ""
    return f"{looks}Next: iconv -f {encoding or 'ENCODING'} -t UTF-8 {shlex.quote(str(path))} > NEW_FILE"


def encoding_of(path: Path | str) -> str:
    """Return the encoding by the byte order mark or the zero bytes of the file's beginning; empty without these."""
    with opened(path) as file:
        head = file.read(HEAD_BYTES)
    by_mark = next((name for mark, name in MARKS.items() if head.startswith(mark)), "")
    zeros = [place for place, byte in enumerate(head) if byte == 0]
    if by_mark or len(zeros) <= MOST_ZEROS * len(head):
        return by_mark
    return "UTF-16LE" if 2 * sum(place % 2 for place in zeros) > len(zeros) else "UTF-16BE"
