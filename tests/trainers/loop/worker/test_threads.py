"""A fork has the threads of a new process, whatever number its libraries have loaded with."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.commands import environment

pytestmark = [pytest.mark.slow, pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="it takes two cores")]

# Loads libraries for runs of so many processes, and forks a rank of a run of one process and one of two. Each says what
# its libraries would use, in the main thread and in another one.
FORKS = """
import os, sys, threading
from conf.schema import RunConfig
from trainers.loop.worker.threads import limit_threads, tell_libraries

before = dict(os.environ)
limit_threads(RunConfig(gpus=0, cpu_processes=int(sys.argv[1])))
import numpy, threadpoolctl, torch

def look():
    pools = [(pool["internal_api"], pool["num_threads"]) for pool in threadpoolctl.threadpool_info()]
    print(torch.get_num_threads(), dict(pools)["openblas"], flush=True)

for number in (1, 2):
    if not os.fork():
        os.environ.clear()
        os.environ.update(before)
        limit_threads(RunConfig(gpus=0, cpu_processes=number))
        tell_libraries()
        look()
        other = threading.Thread(target=look)
        other.start()
        other.join()
        os._exit(0)
    os.wait()
"""


def test_a_fork_has_as_many_threads_as_a_process_that_loaded_with_its_number() -> None:
    pytest.importorskip("threadpoolctl")
    environ = environment()
    del environ["OMP_NUM_THREADS"]
    said = [
        subprocess.run([sys.executable, "-c", FORKS, number], env=environ, capture_output=True, text=True, check=True)
        for number in ("1", "2")
    ]
    most = len(os.sched_getaffinity(0))
    expected = [f"{number} {number}" for number in (most, most, most // 2, most // 2)]
    assert [each.stdout.splitlines() for each in said] == [expected, expected]
