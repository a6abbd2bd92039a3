"""A killed run, or a check, leaves no process and no memory on a GPU."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from tests.support.commands import HANGS_SEC, TINY, collect, environment, events, start
from tests.support.folders import wait_for
from tracking.machine.environment import nvml
from tracking.record import run_folder

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]

CONTEXT_BYTES = 100 * 2**20  # less than what a process takes as soon as it uses a GPU
Holding = tuple[set[tuple[int, int]], list[int]]  # (GPU, process) of each process on one; bytes in use on each GPU
Held = Callable[[], Holding]
NOISE_BYTES = 32 * 2**20  # The driver's own use may differ by that.


@pytest.fixture
def pynvml() -> Iterator[Any]:
    import pynvml

    pynvml.nvmlInit()
    yield pynvml
    pynvml.nvmlShutdown()


@pytest.fixture
def held(pynvml: Any) -> Held:
    """Asks the driver who holds which of the GPUs that we see, and how many bytes of each are in use.

    In a container the driver may tell the numbers that processes have outside, or none: the bytes tell all the same.
    """

    def ask() -> Holding:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(gpu.index) for gpu in nvml.visible_gpus()]
        running = [pynvml.nvmlDeviceGetComputeRunningProcesses(handle) for handle in handles]
        pids = {(index, process.pid) for index, processes in enumerate(running) for process in processes}
        return pids, [pynvml.nvmlDeviceGetMemoryInfo(handle).used for handle in handles]

    return ask


def freed(before: Holding, held: Held) -> bool:
    pids, used = held()
    return pids <= before[0] and all(now <= then + NOISE_BYTES for now, then in zip(used, before[1], strict=True))


def taken(before: Holding, held: Held) -> int:
    """On how many GPUs more is in use than before, by a process."""
    return sum(now > then + CONTEXT_BYTES for now, then in zip(held()[1], before[1], strict=True))


@pytest.mark.parametrize("victim", ["rank 0", "last rank", "worker", "launcher", "everything", "Ctrl-C"])
def test_a_killed_run_gives_its_gpus_back(tmp_path: Path, held: Held, victim: str) -> None:
    """Killed while the last rank stands still and the others wait for it, in a kernel of NCCL's."""
    num_gpus = min(2, len(nvml.visible_gpus()))
    if victim == "last rank" and num_gpus == 1:
        pytest.skip("there is one rank, with one GPU")
    before = held()
    settings = ("model.hparams.fault=hang", f"gpus={num_gpus}", "tracking.offline=true", "compile=false")
    process = start(tmp_path, *TINY, *settings)
    try:
        wait_for(lambda: trains(tmp_path) or process.poll() is not None)
        assert process.poll() is None, process.communicate()[0]
        wait_for(lambda: taken(before, held) == num_gpus)
        wait_for(lambda: "about to meet hang" in worker_log(tmp_path))
        launcher = psutil.Process(process.pid)
        below = [child for supervisor in launcher.children() for child in supervisor.children()]
        [worker] = [child for child in below if "trainers.loop.worker" in child.cmdline()]
        ranks = sorted(
            (rank for rank in worker.children() if rank.cmdline() == worker.cmdline()), key=lambda rank: rank.pid
        )
        assert len(ranks) == num_gpus
        victims = {
            "rank 0": [ranks[0]], "last rank": [ranks[-1]], "worker": [worker], "launcher": [launcher],
            "everything": [launcher, *launcher.children(recursive=True)], "Ctrl-C": [],
        }  # fmt: skip
        for member in victims[victim]:
            member.kill()
        if victim == "Ctrl-C":
            process.send_signal(signal.SIGINT)
        launched = collect(process, tmp_path)
        # The kernel ends the processes of a dead launcher, which may stay zombies. A living launcher has ended its own.
        wait_for(lambda: freed(before, held))
        assert not [
            member for member in (worker, *ranks) if member.is_running() and member.status() != psutil.STATUS_ZOMBIE
        ]
    finally:
        process.kill()
        process.wait()
    if victim not in ("launcher", "everything"):
        assert launched.code == 1, launched.output
        assert launched.result["status"] == "killed"
        kind = f"signal:{int(signal.SIGINT if victim == 'Ctrl-C' else signal.SIGKILL)}"
        assert launched.result["failure"]["kind"] == kind


def worker_log(cwd: Path) -> str:
    return "".join(path.read_text() for path in cwd.rglob(run_folder.WORKER_LOG))


def trains(cwd: Path) -> bool:
    return any(events(path.parent, "epoch_start") for path in cwd.rglob(run_folder.JOURNAL))


def test_the_doctor_sees_the_gpus_has_them_talk_and_gives_them_back(tmp_path: Path, held: Held) -> None:
    before = held()
    command = [sys.executable, "-m", "tracking", "doctor"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=HANGS_SEC)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.partition("\nstacks")[0].splitlines()  # A table of stacks follows.
    findings = {line[5:].partition(":")[0]: line for line in lines}
    assert len(findings) == len(lines), "a line for each thing"
    gpus = nvml.visible_gpus()
    assert gpus[0].name in findings["GPU"]
    assert f"is new enough for CUDA {torch.version.cuda} of torch {torch.__version__}" in findings["driver"]
    if len(gpus) == 1:
        assert findings["NCCL"] == "ok   NCCL: one GPU: not checked"
    else:
        pattern = rf"ok   NCCL: \d+\.\d+\.\d+, all-reduce over {len(gpus)} GPUs at ([\d.]+) GB/s bus bandwidth"
        match = re.fullmatch(pattern, findings["NCCL"])
        assert match
        assert float(match[1]) > 1, "slower than any PCIe"
    wait_for(lambda: freed(before, held))
