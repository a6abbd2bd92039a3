"""A process that reads a program's output as fast as it comes, and stamps each piece with the time.

Matching and journaling a line takes longer than printing it. The program must not wait for that, and a line's time must
not depend on it. A thread would wait for the interpreter; a process does not.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import struct
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from tracking.jobs.program import process
from tracking.jobs.program.moments import Moment, now

HEADER = struct.Struct("=qdI")  # wall clock in ms, monotonic seconds, number of bytes; 0 bytes at the end
PIPE_BYTES = 1_048_576
MOST_BYTES = 268_435_456  # most unread bytes; then the program waits


@dataclass(frozen=True)
class Piece:
    """A piece of output, and the time when it became readable."""

    at: Moment
    content: bytes


class Stamper:
    """A program's output in pieces. `waited_sec` is how long the program waited for a reader."""

    def __init__(self, program: subprocess.Popen[bytes]) -> None:
        assert program.stdout is not None
        output = program.stdout.fileno()
        self.is_open = True
        self.waited_sec = 0.0
        self._pipe, sink = os.pipe()
        self._rest = bytearray()
        widen(output)
        widen(sink)
        self._pid = os.fork()
        if not self._pid:
            _relay_and_exit(output, sink)
        process.spare(self._pid)
        os.close(sink)
        program.stdout.close()

    def pieces(self, patience_sec: float) -> Iterator[Piece]:
        """The available pieces, after a wait of up to `patience_sec`; `is_open` is False at the output's end."""
        if not self.is_open or not self.is_ready(patience_sec):
            return
        chunk = os.read(self._pipe, PIPE_BYTES)
        self.is_open = bool(chunk)  # Closed without a final header: the stamper was killed.
        self._rest += chunk
        while len(self._rest) >= HEADER.size:
            time_ms, seconds, size = HEADER.unpack_from(self._rest)
            if not size:
                self.is_open, self.waited_sec = False, seconds
                return
            end = HEADER.size + size
            if len(self._rest) < end:
                return
            piece = bytes(self._rest[HEADER.size : end])
            del self._rest[:end]
            yield Piece(Moment(time_ms, seconds), piece)

    def is_ready(self, patience_sec: float) -> bool:
        """Whether a piece, a part of one or the end can be read within `patience_sec`."""
        return bool(select.select([self._pipe], [], [], patience_sec)[0])

    def end(self) -> None:
        """Kill the process and close its pipe."""
        self.is_open = False
        os.close(self._pipe)
        os.kill(self._pid, signal.SIGKILL)  # It is not reaped yet, so its number is still its own.
        os.waitpid(self._pid, 0)
        process.forget(self._pid)


def widen(pipe: int) -> None:
    with suppress(OSError):  # The pipe keeps 64 KiB if the user's limit on pipes is reached.
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def _relay_and_exit(output: int, sink: int) -> None:
    """The body of the process. It ends as soon as the output, its reader or the worker has ended."""
    for number in process.STOPPING:
        signal.signal(number, signal.SIG_IGN)  # They are meant for the program, whose last words still have to be read.
    ctypes.CDLL(None).prctl(process.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    with suppress(OSError):  # Its reader has gone.
        relay(output, sink)
    os._exit(0)


def relay(output: int, sink: int) -> None:
    """Pass pieces from one pipe to another until the first ends; reads without waiting for the writes."""
    os.set_blocking(sink, False)
    waiting: deque[memoryview] = deque()
    size, is_open, full_sec = 0, True, 0.0
    while is_open or waiting:
        full = is_open and size >= MOST_BYTES
        began = time.monotonic() if full else 0.0
        readable, writable, _ = select.select([output] if is_open and not full else [], [sink] if waiting else [], [])
        full_sec += time.monotonic() - began if full else 0.0
        if readable:
            chunk = os.read(output, PIPE_BYTES)
            is_open = bool(chunk)
            at = now()
            head = HEADER.pack(at.time_ms, at.clock_sec if chunk else full_sec, len(chunk))
            waiting.append(memoryview(head + chunk))
            size += len(waiting[-1])
        if writable:
            written = os.write(sink, waiting[0])
            size -= written
            waiting[0] = waiting[0][written:]
            if not waiting[0]:
                waiting.popleft()
