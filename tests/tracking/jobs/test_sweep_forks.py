"""Which jobs of a sweep on this machine are forked from a server, and which start anew."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest

from conf.schema import RunConfig
from tests.support.composing import composed
from tracking.jobs.handover import Assignment, Forks
from tracking.jobs.queues import this_machine
from tracking.record import run_lock

PIDS = itertools.count(1)


def forks_of(
    configs: list[RunConfig], folder: Path, monkeypatch: pytest.MonkeyPatch, at_once: int = 1
) -> list[Forks | None]:
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
    machine = this_machine.Machine(at_once)
    machine.check(configs)
    with run_lock.make(folder, f"sweep{next(PIDS)}") as owner:
        for number, config in enumerate(configs):
            machine.submit(owner, config, f"job{number}", 0.0)
    machine.close()
    return told


def jobs(*words: str) -> list[RunConfig]:
    return [composed(["gpus=0", *each.split()]) for each in words]


def test_jobs_of_one_kind_are_forked_and_the_last_one_ends_its_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = forks_of(jobs("seed=1", "seed=2 batch_size=8", "cpu_processes=2", "seed=3"), tmp_path, monkeypatch)
    assert [forks and forks.last for forks in told] == [False, False, None, True]
    assert len({forks.folder for forks in told if forks}) == 1


def test_jobs_that_run_at_once_may_ask_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine.machine_shares, "cores_here", lambda: [
        this_machine.machine_shares.Core(0, (number,)) for number in range(2)
    ])  # fmt: skip
    told = forks_of(jobs("seed=1", "seed=2"), tmp_path, monkeypatch, at_once=2)
    assert [forks and forks.last for forks in told] == [False, False]


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
