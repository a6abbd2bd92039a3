"""The check of the GPUs' links, as far as it goes without GPUs; tests/launch/test_gpu_memory.py has the rest."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
import torch

from tests.support.commands import HANGS_SEC, ROOT, environment
from trainers.ceilings import nccl_check

pytestmark = pytest.mark.slow


def test_ranks_find_each_other_sum_rightly_and_tell_how_fast() -> None:
    assert 0 < nccl_check.bandwidth(2, "cpu", 2**16) < 1000


def failing(rank: int) -> None:
    if rank == 1:
        raise RuntimeError("NCCL error: unhandled cuda error;\nLast error: no memory")
    time.sleep(HANGS_SEC)


def test_a_rank_that_fails_is_told_in_one_line() -> None:
    with pytest.raises(Exception, match="Process 1 terminated") as caught:
        torch.multiprocessing.start_processes(failing, nprocs=2, start_method="fork")
    words = nccl_check.one_line(str(caught.value))
    assert words == "RuntimeError: NCCL error: unhandled cuda error; Last error: no memory"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there are GPUs here")
def test_without_gpus_it_says_so() -> None:
    command = [sys.executable, "-P", "-m", "trainers.ceilings.nccl_check"]
    done = subprocess.run(command, cwd=ROOT, env=environment(PYTHONPATH=str(ROOT)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"torch": torch.__version__, "cuda": torch.version.cuda, "gpus": 0}
