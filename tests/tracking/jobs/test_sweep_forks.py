"""Which jobs of a sweep on this machine are forked from a server, and which start anew."""

from __future__ import annotations

import dataclasses
import itertools
import select
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from conf.schema import RunConfig
from tests.support import commands
from tests.support.composing import composed
from tracking.jobs.handover import Assignment, Forks
from tracking.jobs.queues import this_machine
from tracking.machine.environment import nvml
from tracking.record import run_lock

PIDS = itertools.count(1)


def forks_of(
    configs: list[RunConfig], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> list[Forks | None]:  # fmt: skip
    """Where each job's worker is forked from, one job after the other."""
    told: list[Forks | None] = []

    class Supervisor:
        def __init__(self) -> None:
            self.process = SimpleNamespace(pid=next(PIDS))

        def assign(self, run: Assignment) -> None:
            told.append(run.forks)

        def ended(self) -> int:
            return 0

        def dismiss(self) -> None: ...

    monkeypatch.setattr(this_machine, "SupervisorProcess", Supervisor)
    machine = this_machine.Machine(at_once=1)
    machine.check(configs)
    with run_lock.make(folder, f"sweep{next(PIDS)}") as owner:
        for number, config in enumerate(configs):
            machine.submit(owner, config, f"job{number}", 0.0)
    machine.cancel([], signal.SIGINT)
    assert all(select.select([forks.line], [], [], 0)[0] for forks in told if forks), "each server learns of it at once"
    machine.close()
    return told


def jobs(*words: str) -> list[RunConfig]:
    return [composed(["gpus=0", *each.split()]) for each in words]


def test_all_jobs_of_a_launch_are_forked_from_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = forks_of(jobs("seed=1", "model=ncf", "cpu_processes=2"), tmp_path, monkeypatch)
    assert len(set(told)) == 1
    assert told[0] is not None


def test_a_single_job_and_what_a_server_cannot_fork_start_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    several = jobs("seed=1", "seed=2")
    assert forks_of(several[:1], tmp_path, monkeypatch) == [None]
    of_two_nodes = [dataclasses.replace(config, nodes=2) for config in several]
    assert forks_of(of_two_nodes, tmp_path, monkeypatch) == [None, None]
    programs = jobs(*(f"model=program program.command=true seed={seed}" for seed in (1, 2)))
    assert forks_of(programs, tmp_path, monkeypatch) == [None, None]
    container = dataclasses.replace(several[0].stack, kind="container")
    contained = [dataclasses.replace(config, stack=container) for config in several]
    assert forks_of(contained, tmp_path, monkeypatch) == [None, None]


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.skipif(not nvml.visible_gpus(), reason="needs an NVIDIA GPU")
def test_forked_runs_train_on_a_gpu(tmp_path: Path) -> None:
    short = ("max_epochs=1", "limit_train_batches=4", "tracking.offline=true")
    launched = commands.launch(tmp_path, "-m", "model=vgg", "gpus=1", "seed=1,2", *short)
    assert launched.code == 0, launched.output
    runs = sorted(tmp_path.glob("runs/*/*/journal.jsonl"))
    assert [journal.read_text().count('"forked"') for journal in runs] == [1, 1]
