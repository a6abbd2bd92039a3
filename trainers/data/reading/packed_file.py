"""The beginning and the length of a file's content, plain or gzipped, without reading the rest."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path

from trainers.data.reading.regular_file import opened

RECORD_BYTES = 4  # of the content's length, at the end of a gzipped file (RFC 1952, section 2.3.1)


def is_content(path: Path, start: bytes, num_bytes: int) -> bool:
    """Return whether the content begins like this and is so long; False for a file that cannot be read or is damaged.

    The length of a gzipped file is what its end says: a torn file ends in other bytes.
    """
    try:
        with opened(path) as file:
            if path.suffix != ".gz":
                return file.read(len(start)) == start and os.fstat(file.fileno()).st_size == num_bytes
            with gzip.open(file) as content:
                if content.read(len(start)) != start:
                    return False
            file.seek(-RECORD_BYTES, os.SEEK_END)
            return int.from_bytes(file.read(), "little") == num_bytes
    except (OSError, EOFError, zlib.error):
        return False
