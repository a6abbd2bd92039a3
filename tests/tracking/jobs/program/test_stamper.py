"""The stamper reads a program's output as fast as it comes, without loss."""

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
from pathlib import Path
from typing import cast

import pytest

from tests.support.commands import HANGS_SEC
from tests.support.folders import wait_for
from tracking.jobs.program import process, stamper, worker
from tracking.jobs.program.listener import Listener
from tracking.jobs.program.moments import now
from tracking.jobs.program.stamper import Stamper

pytestmark = pytest.mark.slow

LINES = 400_000  # 4 MiB, more than the pipes hold
PRINTS = f"print('\\n'.join(f'{{number:09}}' for number in range({LINES})))"


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


@pytest.mark.parametrize("before", [0, 50])
def test_what_is_more_than_is_kept_waits_and_the_wait_is_told(monkeypatch: pytest.MonkeyPatch, before: int) -> None:
    monkeypatch.setattr(stamper, "MOST_BYTES", stamper.HEADER.size + 2)
    (output, says), (reads, sink) = os.pipe(), os.pipe()
    os.set_blocking(sink, False)
    relaying = threading.Thread(target=stamper.relay, args=[output, sink])
    relaying.start()
    for _ in range(before):  # Pieces that were read are no part of what is kept.
        os.write(says, b"x")
        wait_for(lambda: unread(reads) > stamper.HEADER.size)
        os.read(reads, 4096)
    filled = 0
    with suppress(BlockingIOError):
        while True:
            filled += os.write(sink, b"x" * 4096)
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


def test_what_waits_is_passed_on_while_more_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stamper, "PIPE_BYTES", 1000)
    (tmp_path / "printed").write_bytes(b"x" * 10_000)
    reads, sink = os.pipe()
    passed_on: list[int] = []

    def noting_now() -> stamper.Moment:
        passed_on.append(unread(reads))
        return now()

    monkeypatch.setattr(stamper, "now", noting_now)
    with (tmp_path / "printed").open("rb") as output:  # It can always be read.
        stamper.relay(output.fileno(), sink)
    os.close(reads)
    os.close(sink)
    assert passed_on[-1] == 9 * (stamper.HEADER.size + 1000)


def unread(pipe: int) -> int:
    """The bytes in a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, b"    "), sys.byteorder)


def test_a_stamper_that_is_killed_is_the_end_of_the_output(program: subprocess.Popen[bytes]) -> None:
    taken = Stamper(program)
    os.kill(taken._pid, signal.SIGKILL)
    read(taken)
    assert not taken.is_open


def test_a_stamper_that_is_killed_within_a_piece_is_the_end_of_the_output(program: subprocess.Popen[bytes]) -> None:
    taken = Stamper(program)
    reads, sink = os.pipe()
    os.dup2(reads, taken._pipe)
    os.close(reads)
    os.write(sink, stamper.HEADER.pack(0, 0.0, 10) + b"half")
    os.close(sink)
    for _ in range(2):
        assert not list(taken.pieces(HANGS_SEC))
    assert not taken.is_open
    taken.end()


def test_the_stampers_number_is_its_own_until_it_is_ended(program: subprocess.Popen[bytes]) -> None:
    taken = Stamper(program)
    while taken.is_open:
        list(taken.pieces(HANGS_SEC))
    os.waitid(os.P_PID, taken._pid, os.WEXITED | os.WNOWAIT)
    program.wait(HANGS_SEC)
    process.reap(program.pid)
    os.waitid(os.P_PID, taken._pid, os.WEXITED | os.WNOWAIT)  # It can still be waited for.
    taken.end()
    assert taken._pid not in process._spared


class Hears:
    """Stands for the listener."""

    def __init__(self) -> None:
        self.said = bytearray()

    def hear(self, chunk: bytes, at: stamper.Moment) -> None:
        self.said += chunk


def test_the_last_words_behind_more_than_a_pipe_holds_are_heard(
    program: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stamper, "widen", lambda pipe: None)  # As where the user's share of pipes is used up.
    monkeypatch.setattr(worker, "LAST_WORDS_SEC", HANGS_SEC)
    taken, listener = Stamper(program), Hears()
    program.wait(HANGS_SEC)
    worker.hear_out(cast(Listener, listener), taken)
    taken.end()
    assert len(listener.said) == 10 * LINES
    assert listener.said.endswith(b"%09d\n" % (LINES - 1))


def test_a_part_of_a_piece_is_not_the_last_word(
    program: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "LAST_WORDS_SEC", HANGS_SEC)
    taken, listener = Stamper(program), Hears()
    reads, sink = os.pipe()
    os.dup2(reads, taken._pipe)
    os.close(reads)
    os.write(sink, stamper.HEADER.pack(0, 0.0, 10) + b"first")

    def go_on() -> None:
        wait_for(lambda: not unread(taken._pipe))
        os.write(sink, b" half" + stamper.HEADER.pack(0, 0.0, 0))

    going_on = threading.Thread(target=go_on)
    going_on.start()
    worker.hear_out(cast(Listener, listener), taken)
    going_on.join()
    os.close(sink)
    taken.end()
    assert listener.said == b"first half"


@pytest.mark.parametrize("does", ["time.sleep(1000)", "while True: print('x' * 4096)"])
def test_an_output_that_another_process_holds_open_is_not_heard_for_ever(
    monkeypatch: pytest.MonkeyPatch, does: str
) -> None:
    monkeypatch.setattr(worker, "LAST_WORDS_SEC", 0.1)
    code = f"import time; print('first', flush=True)\n{does}"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        taken, listener = Stamper(other), Hears()
        wait_for(lambda: taken.is_ready(0))
        worker.hear_out(cast(Listener, listener), taken)
        assert taken.is_open
        taken.end()
        other.kill()
    assert listener.said.startswith(b"first")


def test_the_stamper_is_no_part_of_the_program(
    program: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The tests' own servers are children of this process, too.
    monkeypatch.setattr(process, "_spared", process.descendants() - {program.pid})
    taken = Stamper(program)
    program.wait(HANGS_SEC)
    process.end_all()
    assert len(b"".join(piece.content for piece in read(taken))) == 10 * LINES
