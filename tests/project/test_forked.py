"""How a fork ends, and what tests hear of it, from whichever of their threads."""

from __future__ import annotations

import subprocess
import sys
from multiprocessing import forkserver
from pathlib import Path

import pytest

from tests.support import forked
from tests.support.commands import environment
from tests.support.composing import ROOT

HANGS_SEC = 120.0
# The first reader of a fork's exit code waits for a second one. If one thread reads at a time, none comes.
# The process forks from a server of its own, which imports nothing.
TWO_THREADS = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import connection, popen_forkserver
from pathlib import Path
from tests.support import forked

forked.IMPORTS = []
both, read = threading.Barrier(2), popen_forkserver.forkserver.read_signed


def read_signed(descriptor):
    try:
        both.wait(0.5)
    except threading.BrokenBarrierError:
        pass
    return read(descriptor)


def start(): return forked.Forked([], Path.cwd(), {}, script="ends.py")


first = start()
connection.wait([first._process.sentinel])
popen_forkserver.forkserver.read_signed = read_signed
with ThreadPoolExecutor(2) as pool:
    code, second = pool.submit(first.wait), pool.submit(start)
print(code.result(), first.returncode, second.result().wait())
"""
# Two processes fork from a server that this one started, as pytest's workers do. A fork prints its parent's number.
SHARES = """
import subprocess, sys
from multiprocessing import forkserver
from tests.support import forked

forked.IMPORTS = []
forked.share()
print(forkserver._forkserver._forkserver_pid, flush=True)
code = "from pathlib import Path; from tests.support import forked\\n"
code += "print(forked.Forked([], Path.cwd(), {}, script='tells.py').communicate()[0], end='', flush=True)"
for _ in range(2):
    subprocess.run([sys.executable, "-c", code], check=True)
"""


pytestmark = [pytest.mark.slow, pytest.mark.skipif(not forked.possible(), reason="no test forks where a GPU is")]


def test_a_start_in_another_thread_does_not_take_a_forks_exit_code(tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text("import sys\nsys.exit(7)\n")
    command = [sys.executable, "-c", TWO_THREADS]
    told = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert told.stdout.split() == ["7", "7", "7"], told.stderr


@pytest.mark.skipif(hasattr(forkserver._forkserver, "_forkserver_authkey"), reason="since 3.14 each has its own")
def test_pytests_workers_fork_from_one_process(tmp_path: Path) -> None:
    (tmp_path / "tells.py").write_text("import os\nprint(os.getppid())\n")
    told = subprocess.run(
        [sys.executable, "-c", SHARES], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    server, *parents = told.stdout.split()
    assert parents == [server, server], told.stderr


def test_a_fork_whose_pool_of_threads_is_never_shut_down_ends_as_a_process_would(tmp_path: Path) -> None:
    """MLflow keeps such pools. Python ends their threads before it waits for threads."""
    script = tmp_path / "ends.py"
    script.write_text(
        "import concurrent.futures as of\nof.pool = of.ThreadPoolExecutor()\nof.pool.submit(print, 'last words')"
    )
    command = forked.Forked([], tmp_path, environment(), script=str(script))
    try:
        assert command.communicate(timeout=HANGS_SEC) == ("last words\n", "")
    finally:
        command.kill()
