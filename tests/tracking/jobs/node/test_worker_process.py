"""Which workers of a search one server may fork."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.support.composing import composed
from tracking.jobs.handover.forked_worker import key_of
from tracking.jobs.node import machine_shares
from tracking.jobs.node.machine_shares import Core
from tracking.jobs.node.worker_process import loaded_with

CORES = [Core(number // 16, (number,)) for number in range(32)]
SHARES = machine_shares.cut(8, CORES, {f"GPU-{number}": number // 4 for number in range(8)}, 1)


def kind(gpus: int, numbers: list[int], monkeypatch: pytest.MonkeyPatch, **variables: str) -> str:
    share = machine_shares.joined([SHARES[number] for number in numbers])
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(share.threads))
    config = composed([f"gpus={gpus}"])
    environ = {"TIMETRIAL_LAUNCHER": str(random.random()), **share.environment(), **variables}
    return key_of(["python", "-m", "worker", str(Path("runs", str(numbers)))], loaded_with(config, environ))


def test_runs_side_by_side_share_a_server_on_whichever_gpus_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    placements = [(gpus, random.Random(seed).sample(range(8), gpus)) for seed in range(8) for gpus in (1, 2, 4)]
    assert len({kind(gpus, numbers, monkeypatch) for gpus, numbers in placements}) == 1
    alone = {kind(gpus, list(range(8)), monkeypatch) for gpus in (1, 2, 4, 8)}
    assert len(alone) == 4, "libraries read the number of threads as they load"


def test_where_openmp_binds_threads_to_cores_each_set_of_cores_has_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {kind(1, [number], monkeypatch, OMP_PROC_BIND="true") for number in range(3)}
    assert len(kinds) == 3
