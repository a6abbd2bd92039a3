"""What a program prints is taken as fast as it comes, and is whole."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.support.commands import HANGS_SEC
from tests.support.folders import wait_for
from tracking.jobs.program import process, stamper
from tracking.jobs.program.stamper import Stamper

pytestmark = pytest.mark.slow

LINES = 400_000  # 4 MiB, more than the pipes hold
PRINTS = f"for number in range({LINES}): print(f'{{number:09}}')"


@pytest.fixture
def program() -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen([sys.executable, "-c", PRINTS], stdout=subprocess.PIPE)
    yield started
    started.kill()
    started.wait()


def read(taken: Stamper) -> list[stamper.Piece]:
    pieces: list[stamper.Piece] = []
    while taken.is_open:
        pieces += taken.pieces(HANGS_SEC)
    taken.end()
    return pieces


def test_a_program_ends_though_nobody_reads_what_it_prints(program: subprocess.Popen[bytes]) -> None:
    taken = Stamper(program)
    assert program.wait(HANGS_SEC) == 0
    pieces = read(taken)
    assert b"".join(piece.content for piece in pieces) == b"".join(b"%09d\n" % number for number in range(LINES))
    times = [piece.at.clock_sec for piece in pieces]
    assert times == sorted(times)
    assert taken.waited_sec == 0


def test_what_is_more_than_is_kept_waits_and_the_wait_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stamper, "MOST_BYTES", 1)
    (output, says), (reads, sink) = os.pipe(), os.pipe()
    os.set_blocking(sink, False)
    filled = 0
    with suppress(BlockingIOError):
        while True:
            filled += os.write(sink, b"x" * 4096)
    relaying = threading.Thread(target=stamper.relay, args=[output, sink])
    relaying.start()
    os.write(says, b"first")
    wait_for(lambda: not unread(output))
    os.write(says, b"second")
    os.close(says)
    took = os.read(reads, filled)
    while relaying.is_alive():
        took += os.read(reads, 4096) if unread(reads) else b""
    took += os.read(reads, unread(reads))
    for descriptor in (output, reads, sink):
        os.close(descriptor)
    took = took[filled:]
    words = []
    while took:
        _, seconds, size = stamper.HEADER.unpack_from(took)
        words.append(took[stamper.HEADER.size : stamper.HEADER.size + size])
        took = took[stamper.HEADER.size + size :]
    assert words == [b"first", b"second", b""]
    assert seconds > 0


def unread(pipe: int) -> int:
    """The bytes in a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, b"    "), sys.byteorder)


def test_a_stamper_that_is_killed_is_the_end_of_the_output(program: subprocess.Popen[bytes]) -> None:
    taken = Stamper(program)
    os.kill(taken._pid, signal.SIGKILL)
    read(taken)
    assert not taken.is_open


def test_the_stamper_is_no_part_of_the_program(program: subprocess.Popen[bytes]) -> None:
    taken = Stamper(program)
    program.wait(HANGS_SEC)
    process.end_all()
    assert len(b"".join(piece.content for piece in read(taken))) == 10 * LINES
