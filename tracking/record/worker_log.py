"""worker.log: the output of a worker, without the secrets of its environment."""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import suppress
from pathlib import Path

from tracking.base import secrets
from tracking.record import files

PIPE_BYTES = 1_048_576  # the largest for an unprivileged process (pipe(7)), so that a stopped launcher blocks no worker
LINE_BYTES = 65_536  # a longer line is written in parts, split between words: half a secret would not be recognised


class WorkerLog:
    """Copies a worker's output to its log: `with WorkerLog(path) as output:` start it, `close` when it has ended.

    A thread reads a pipe, redacts secrets and writes the file line by line. A worker that wrote the file itself would
    leave secrets from error messages in it.
    """

    def __init__(self, path: Path) -> None:
        self._file = files.opened(path, "wb", buffering=0)
        self._reading, self._writing = os.pipe()
        with suppress(OSError):  # If the user's limit for pipes is used up, it keeps 64 KiB.
            fcntl.fcntl(self._reading, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._thread = threading.Thread(target=self._copy, name="worker-log", daemon=True)

    def __enter__(self) -> int:
        self._thread.start()
        return self._writing

    def __exit__(self, *_: object) -> None:
        os.close(self._writing)  # the worker has its own end

    def close(self, timeout_sec: float = 5.0) -> None:
        """Wait up to `timeout_sec` until all is written: a process outside the group may keep the pipe open."""
        self._thread.join(timeout_sec)

    def _copy(self) -> None:
        rest = b""
        while chunk := os.read(self._reading, PIPE_BYTES):
            rest += chunk
            end = max(rest.rfind(b"\n"), rest.rfind(b"\r")) + 1
            if not end and len(rest) > LINE_BYTES:
                end = rest.rfind(b" ") + 1 or len(rest)
            self._write(rest[:end])
            rest = rest[end:]
        self._write(rest)
        os.close(self._reading)
        self._file.close()

    def _write(self, content: bytes) -> None:
        text = content.decode("utf-8", "surrogateescape")
        with suppress(OSError):  # a full disk: the worker continues, and the file keeps what fits
            self._file.write(secrets.redact(text).encode("utf-8", "surrogateescape"))
