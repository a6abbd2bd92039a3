"""A test without a marker starts no process, so that `make quick` stays quick."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
from collections.abc import Callable

import pytest


@pytest.mark.parametrize(
    "start",
    [
        lambda: subprocess.run(["true"], check=True),
        lambda: os.system("true"),
        lambda: multiprocessing.get_context("spawn").Process(target=int).start(),
    ],
    ids=["subprocess", "system", "multiprocessing"],
)
def test_a_process_is_refused_with_the_markers_name(start: Callable[[], object]) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"starts a process .* the marker `slow`"):
        start()


@pytest.mark.slow
def test_a_test_with_the_marker_may_start_one() -> None:
    assert subprocess.run(["true"]).returncode == 0
