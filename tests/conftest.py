"""What tests of several folders share: one server of a team for the whole session."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.team_server import TeamServer

# Tests start some hundred processes, and a machine may keep no bytecode (PYTHONDONTWRITEBYTECODE, an installer that
# compiles nothing): then each would compile torch's and MLflow's sources anew, which is half of the time of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ["PYTHONPYCACHEPREFIX"] = str(Path(__file__).resolve().parent.parent / ".bytecode_cache")
sys.dont_write_bytecode, sys.pycache_prefix = False, os.environ["PYTHONPYCACHEPREFIX"]
# Of a process that has loaded readline, such as pytest's first, others inherit a terminal's width that nobody has set.
os.environ.pop("COLUMNS", None)
# Tests in the background of a script, or under nohup, ignore these signals, and what they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def team_server() -> Iterator[TeamServer]:
    with TeamServer() as server:
        yield server
