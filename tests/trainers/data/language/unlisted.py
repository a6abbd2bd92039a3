"""A folder that this user may not list."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock


@contextmanager
def unlisted(folder: Path) -> Iterator[None]:
    """For root, too, whom the kernel refuses nothing."""

    def refusing(listing: Any) -> Any:
        def of(path: Any = ".") -> Any:
            if os.fspath(path) == str(folder):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
            return listing(path)

        return of

    with mock.patch("os.scandir", refusing(os.scandir)), mock.patch("os.listdir", refusing(os.listdir)):
        yield
