"""worker.log: what a worker prints, without the secrets of its environment."""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import suppress
from pathlib import Path

from tracking.base import secrets
from tracking.record import files

PIPE_BYTES = 1_048_576  # the most that an unprivileged process may ask for (pipe(7)): a stopped launcher blocks nobody
LINE_BYTES = 65_536  # a longer line is written in parts, between two words: half a secret is not recognised


class WorkerLog:
    """`with WorkerLog(path) as output:` start the worker with `output`; `close` when its processes have ended.

    A thread reads a pipe and writes the file line by line. A worker that writes to the file itself would leave there,
    in plain words, whatever a library puts into an error message.
    """

    def __init__(self, path: Path) -> None:
        self._file = files.opened(path, "wb", buffering=0)
        self._reading, self._writing = os.pipe()
        with suppress(OSError):  # It keeps the usual 64 KiB where the user's share of pipes is used up.
            fcntl.fcntl(self._reading, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._thread = threading.Thread(target=self._copy, name="worker-log", daemon=True)

    def __enter__(self) -> int:
        self._thread.start()
        return self._writing

    def __exit__(self, *_: object) -> None:
        os.close(self._writing)  # the worker has an end of its own

    def close(self, timeout_sec: float = 5.0) -> None:
        """Wait until all of it is written; a process that got away from its group may keep its end of the pipe."""
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
        with suppress(OSError):  # a full disk: the worker prints on, and the file has what there was room for
            self._file.write(secrets.redact(text).encode("utf-8", "surrogateescape"))
