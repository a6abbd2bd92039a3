"""What a run that failed printed last."""

from __future__ import annotations

from pathlib import Path

from tracking.record import failures, run_folder


def test_last_words_begin_at_a_line(tmp_path: Path) -> None:
    lines = [f"line {number:04}" for number in range(1000)]
    (tmp_path / run_folder.WORKER_LOG).write_text("\n".join(lines))
    words = failures.last_words(tmp_path).splitlines()
    assert words == lines[-len(words) :]
    assert 300 < len(words) < 1000
    (tmp_path / run_folder.WORKER_LOG).write_text("x" * 5000)
    assert failures.last_words(tmp_path) == "x" * failures.LAST_WORDS_BYTES, "a line alone stays"
    (tmp_path / run_folder.WORKER_LOG).write_text("whole\nwords\n")
    assert failures.last_words(tmp_path) == "whole\nwords\n"


def test_a_ranks_error_is_told_and_not_that_of_torchrun(tmp_path: Path) -> None:
    (tmp_path / run_folder.WORKER_LOG).write_text(
        '[rank1]: Traceback (most recent call last):\n[rank1]:   File "t.py", line 3\n[rank1]: ValueError: no device\n'
        'Traceback (most recent call last):\n  File "run.py", line 9\n'
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n=====\nt.py FAILED\n"
    )
    assert failures.last_line(tmp_path) == "ValueError: no device"
