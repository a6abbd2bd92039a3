"""A supervisor sees the end of what started it, however late it looks."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from tracking.jobs.handover.lifeline import LAUNCHER, STEP, Lifeline


def test_an_end_that_is_gone_is_seen_also_by_who_looks_later() -> None:
    read, write = os.pipe()
    line = Lifeline((read,))
    assert line.cut() is None
    os.close(write)
    assert line.cut() == line.cut(None) == read
    os.close(read)


def test_the_reader_of_what_is_printed_is_another_such_end() -> None:
    read, write = os.pipe()
    line = Lifeline((write,))
    assert line.cut() is None
    os.close(read)
    assert line.cut() == write
    os.close(write)


def test_who_watches_is_told_to_stop_by_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    told = threading.Event()
    read, write = os.pipe()
    before = signal.signal(signal.SIGTERM, lambda *_: told.set())
    try:
        Lifeline((read,)).watch()
        assert not told.is_set()
        os.close(write)
        while not told.wait(0.01):
            pass
    finally:
        signal.signal(signal.SIGTERM, before)
        os.close(read)


@pytest.mark.parametrize(
    ("kind", "descriptors"), [("none", (LAUNCHER,)), ("here", (LAUNCHER, STEP)), ("slurm", (STEP,))]
)
def test_jobs_of_slurm_alone_go_on_without_their_launcher(kind: str, descriptors: tuple[int, ...]) -> None:
    assert Lifeline.of(kind).descriptors == descriptors
