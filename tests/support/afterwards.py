"""Ends processes whose test was killed. Ctrl-C under xdist kills a test after ten seconds."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

# It reads a word where the test ends in good order, and the end of the file where that is killed.
WATCH = 'read word || exec "$@"'


@contextmanager
def even_if_killed(*command: str) -> Iterator[None]:
    """Have a command run where this process is killed within the block."""
    watcher = subprocess.Popen(
        ["sh", "-c", WATCH, "sh", *command], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        yield
    finally:
        watcher.communicate(b"ended\n")
