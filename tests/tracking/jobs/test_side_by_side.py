"""A search's jobs on one machine: side by side on GPUs of their own, or alone."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from conf.launch_options import SearchConfig
from conf.schema import ConfigError, RunConfig
from tests.support.composing import EIGHT_GPUS, composed
from tracking.jobs.handover import Assignment
from tracking.jobs.node import Ticket, machine_shares
from tracking.jobs.node.machine_shares import Core
from tracking.jobs.queues import this_machine as machine_module
from tracking.jobs.queues.this_machine import Machine
from tracking.machine.environment import nvml
from tracking.record import run_lock
from tracking.request.node_options import resolve_jobs_at_once

FOUR_GPUS = EIGHT_GPUS[:4]
CORES = [Core(number // 4, (number,)) for number in range(8)]  # of two sockets, as the GPUs are
PIDS = itertools.count(1)


class Supervisor:
    """One that lives until the test ends it."""

    def __init__(self) -> None:
        self.process = SimpleNamespace(pid=next(PIDS))
        self.assigned: Assignment | None = None
        self.code: int | None = None

    def assign(self, run: Assignment) -> None:
        self.assigned = run

    def ended(self) -> int | None:
        return self.code

    def dismiss(self) -> None: ...


def of_search(gpus: int, phase: str = "explore") -> RunConfig:
    return dataclasses.replace(composed(["gpus=0"]), gpus=gpus, search=SearchConfig("quickest", phase=phase))


class FourGpus:
    """A machine of four GPUs, with what was given to each job's supervisor."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._supervisors: list[Supervisor] = []
        monkeypatch.setattr(machine_module, "SupervisorProcess", self._supervisor)
        monkeypatch.setattr(nvml, "visible_gpus", lambda: FOUR_GPUS)
        monkeypatch.setattr(nvml, "bus_id", lambda uuid: uuid)
        monkeypatch.setattr(machine_shares, "numa_of_pci", lambda bus_id: int(bus_id[-1]) // 2)
        monkeypatch.setattr(machine_shares, "cores_here", lambda: CORES)
        self.queue = Machine(at_once=4)
        self.queue.check([of_search(1), of_search(2), of_search(4)])

    def _supervisor(self) -> Supervisor:
        self._supervisors.append(Supervisor())
        return self._supervisors[-1]

    def submit(self, config: RunConfig) -> tuple[Ticket, Supervisor]:
        with run_lock.make(self._folder, f"run{next(PIDS)}") as owner:
            ticket = self.queue.submit(owner, config, "a", 0.0)
        return ticket, next(each for each in self._supervisors if str(each.process.pid) == ticket.job_id)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FourGpus]:
    machine = FourGpus(tmp_path, monkeypatch)
    yield machine
    machine.queue.close()  # It holds a folder of forked workers.


def given(supervisor: Supervisor) -> tuple[str, str]:
    """The GPUs and the cores that a job may use; empty where it has all."""
    assert supervisor.assigned
    environment = supervisor.assigned.environment
    return environment.get("CUDA_VISIBLE_DEVICES", ""), environment.get(machine_shares.CORES, "")


def test_each_run_on_one_gpu_has_one_of_its_own_with_its_part_of_the_cores(machine: FourGpus) -> None:
    runs = []
    for _ in range(4):
        assert machine.queue.has_room(of_search(1))
        runs.append(machine.submit(of_search(1))[1])
    assert [given(run) for run in runs] == [("GPU-0", "0-1"), ("GPU-1", "2-3"), ("GPU-2", "4-5"), ("GPU-3", "6-7")]
    assert not machine.queue.has_room(of_search(1))
    runs[2].code = 0
    assert machine.queue.has_room(of_search(1))
    assert given(machine.submit(of_search(1))[1]) == ("GPU-2", "4-5")


def test_a_run_on_two_gpus_waits_for_two_and_has_those_of_one_socket(machine: FourGpus) -> None:
    alone, *others = [machine.submit(of_search(1))[1] for _ in range(3)]
    assert not machine.queue.has_room(of_search(2))
    alone.code = 0
    assert machine.queue.has_room(of_search(2))
    others[0].code = others[1].code = 0
    beside = machine.submit(of_search(1))[1]
    assert given(beside)[0] == "GPU-0"
    ticket, two = machine.submit(of_search(2))
    assert given(two) == ("GPU-2,GPU-3", "4-7")
    assert str(machine.queue.states([ticket])[ticket.job_id]) == "running on cores 4-7, NUMA node 1, 2 GPUs"
    assert machine.queue.has_room(of_search(1))
    assert not machine.queue.has_room(of_search(4))


def test_a_run_that_decides_waits_for_all_others_and_has_the_machine_for_itself(machine: FourGpus) -> None:
    ticket, exploring = machine.submit(of_search(1))
    assert not machine.queue.has_room(of_search(1, "decide"))
    exploring.code = 0
    ticket, deciding = machine.submit(of_search(1, "decide"))
    assert given(deciding) == ("", "")
    assert not machine.queue.has_room(of_search(1))
    assert str(machine.queue.states([ticket])[ticket.job_id]) == "running"


def test_a_search_explores_on_all_gpus_unless_it_is_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    search, sweep = of_search(1), dataclasses.replace(composed(["gpus=0"]), gpus=1)
    assert resolve_jobs_at_once(search, ["search=quickest"], EIGHT_GPUS) == 8
    assert resolve_jobs_at_once(search, ["sweep.jobs_at_once=1"], EIGHT_GPUS) == 1
    assert resolve_jobs_at_once(sweep, [], EIGHT_GPUS) == 1
    for other in ({"gpus": 0}, {"gpus": [0, 1]}, {"nodes": 2}):
        assert resolve_jobs_at_once(dataclasses.replace(search, **other), [], EIGHT_GPUS) == 1
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert resolve_jobs_at_once(search, [], EIGHT_GPUS) == 1, "a job has a core of its own"


def test_an_ordinary_sweep_has_equal_shares_as_before(machine: FourGpus) -> None:
    plain = dataclasses.replace(of_search(1), search=SearchConfig())
    machine.queue.check([plain])
    assert given(machine.submit(plain)[1]) == ("GPU-0", "0-1")
    with pytest.raises(ConfigError, match="4 GPUs are visible, but 4 jobs of gpus=2 need 8"):
        machine.queue.check([dataclasses.replace(plain, gpus=2)])
