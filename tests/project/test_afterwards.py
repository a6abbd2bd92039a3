"""What tests have started ends with them, however they end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.afterwards import even_if_killed
from tests.support.commands import ROOT, environment
from tests.support.folders import wait_for

pytestmark = pytest.mark.slow
KILLED = """
import os, signal, sys
from tests.support.afterwards import even_if_killed
with even_if_killed("touch", sys.argv[1]):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_who_is_killed_has_it_done(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "done")], cwd=ROOT, env=environment(), check=False)
    wait_for((tmp_path / "done").exists)


def test_who_ends_in_good_order_has_not(tmp_path: Path) -> None:
    with even_if_killed("touch", str(tmp_path / "done")):
        pass
    assert not (tmp_path / "done").exists()  # The shell has ended.
