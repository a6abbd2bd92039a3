"""A launcher whose server is away says that it waits, before it waits."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.support import quick_launch
from tests.support.faulty_proxy import FaultyProxy

pytestmark = pytest.mark.slow

FINISH: dict[str, object] = {"rows": 3, "then": "finish"}
WAITS = "waiting for MLflow"


@pytest.mark.parametrize("fault", ["refuse", pytest.param("hang", marks=pytest.mark.exhaustive)])
def test_a_pipe_hears_of_the_wait_before_it_is_over(tmp_path: Path, proxy: FaultyProxy, fault: str) -> None:
    proxy.fault = fault
    process = quick_launch.start(tmp_path, proxy.uri, FINISH, WAIT_SEC="60")
    assert process.stdout
    words = next((line for line in process.stdout if line.startswith(WAITS)), "")
    assert f"({proxy.uri}), 60 s at most; Ctrl-C ends the wait. Nothing is lost" in words
    before = time.monotonic()
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate()
    assert time.monotonic() - before < 30, "it waits no more"
    assert "not uploaded" in rest
    assert "upload it with" in rest


def test_a_moment_needs_no_word(tmp_path: Path, proxy: FaultyProxy) -> None:
    proxy.fault = "refuse"
    output, _ = quick_launch.begin(tmp_path, proxy.uri, FINISH, WAIT_SEC="1").communicate()
    assert "not uploaded" in output
    assert WAITS not in output
