"""Which workers one server may fork."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.support.composing import composed
from tracking.jobs.handover.forked_worker import key_of
from tracking.jobs.node import machine_shares
from tracking.jobs.node.machine_shares import Core
from tracking.jobs.node.worker_process import leaves_daemons, loaded_with
from tracking.jobs.worker_command import WorkerCommand, worker_command

CORES = [Core(number // 16, (number,)) for number in range(32)]
SHARES = machine_shares.cut(8, CORES, {f"GPU-{number}": number // 4 for number in range(8)}, 1)


def server(numbers: list[int], monkeypatch: pytest.MonkeyPatch, *words: str, **variables: str) -> str:
    """The name of the server that forks a worker with these GPUs."""
    share = machine_shares.joined([SHARES[number] for number in numbers])
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(share.threads))
    config, folder = composed([f"gpus={len(numbers)}", *words]), Path("runs", str(numbers))
    environ = worker_command(config, folder, {"PATH": "/bin", **share.environment(), **variables}).env
    environ["TIMETRIAL_LAUNCHER"] = str(random.random())
    return key_of(["python", "-m", "worker", str(folder)], loaded_with(config, environ))


def test_runs_share_a_server_whichever_gpus_they_have_and_whatever_they_train(monkeypatch: pytest.MonkeyPatch) -> None:
    placements = [random.Random(seed).sample(range(8), gpus) for seed in range(8) for gpus in (1, 2, 4, 8)]
    models = ("vgg", "maskrcnn")
    assert len({server(gpus, monkeypatch, f"model={model}") for gpus in placements for model in models}) == 1


def test_runs_that_import_otherwise_have_a_server_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    own = server([0], monkeypatch, "model.workload=tests.workloads.tiny:WORKLOAD")
    other = server([0], monkeypatch, "+stack.env.NCCL_DEBUG=INFO")
    assert len({own, other, server([0], monkeypatch)}) == 3


def test_where_openmp_binds_threads_to_cores_each_set_of_cores_has_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len({server([number], monkeypatch, OMP_PROC_BIND="true") for number in range(3)}) == 3


def test_where_the_user_sets_mkls_threads_each_number_of_processes_has_a_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers = {server([0], monkeypatch, "gpus=0", f"cpu_processes={number}", MKL_NUM_THREADS="2") for number in (1, 2)}
    assert len(servers) == 2


@pytest.mark.parametrize(
    ("command", "leaves"),
    [
        (WorkerCommand(["python"], {}), True),
        (WorkerCommand(["apptainer"], {}, contained=True), True),  # its processes are the launcher's own
        (WorkerCommand(["podman"], {}, contained=True, ending=["podman", "rm"]), False),
    ],
)
def test_a_program_may_leave_processes_that_no_service_ends(command: WorkerCommand, leaves: bool) -> None:
    program = composed(["model=program", "program.command=true", "gpus=0"])
    assert leaves_daemons(program, command) is leaves
    assert not leaves_daemons(composed(["gpus=0"]), command), "its ranks die with it"
