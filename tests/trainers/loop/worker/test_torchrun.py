"""How torchrun starts the ranks: none joins the process group before all are forked."""

from __future__ import annotations

import inspect
import itertools
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.elastic.rendezvous import RendezvousParameters, dynamic_rendezvous, registry

import trainers.loop.train
from tests.support.composing import composed
from tests.support.folders import wait_for
from tests.support.slurm_cluster import free_ports
from tracking.record import node_records, run_folder
from trainers.loop.worker import rank, torchrun

HANGS_SEC = 60.0
WITHIN_SEC = 1.0  # A rank that does not wait takes milliseconds.


def test_torchruns_rendezvous_names_its_events_without_looking_for_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    names = []

    def record(**event: Any) -> None:
        names.append(event["name"])

    def look() -> None:
        raise AssertionError("inspect.stack looks for the sources of all modules")

    monkeypatch.setattr(dynamic_rendezvous, "get_method_name", dynamic_rendezvous.get_method_name)  # to be restored
    monkeypatch.setattr(dynamic_rendezvous, "construct_and_record_rdzv_event", record)
    monkeypatch.setattr(inspect, "stack", look)
    torchrun.name_methods_quickly()
    asked = RendezvousParameters("c10d", "localhost:0", "a run", min_nodes=1, max_nodes=1)
    handler = registry.get_rendezvous_handler(asked)
    assert handler.next_rendezvous().world_size == 1
    assert handler.shutdown()
    assert "DynamicRendezvousHandler.next_rendezvous" in names


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 2])
def test_no_rank_joins_before_the_head_nodes_agent_has_forked_all(
    nodes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent of the head node does not fork its second rank until all other ranks could have joined."""
    config, forks = composed(["gpus=0", "cpu_processes=2"]), itertools.count()
    config.nodes = nodes
    monkeypatch.setattr(trainers.loop.train, "train", lambda *_: (tmp_path / f"joined-{os.environ['RANK']}").touch())
    monkeypatch.setattr(run_folder, "read_config", lambda _: config)
    monkeypatch.setattr(rank, "tell_libraries", lambda: (tmp_path / f"started-{os.environ['RANK']}").touch())
    monkeypatch.setenv(node_records.RENDEZVOUS, f"127.0.0.1:{free_ports(1)[0]}")

    def hold_second_fork() -> None:
        if next(forks) == 1:
            wait_for(lambda: len(list(tmp_path.glob("started-*"))) == 2 * nodes - 1, HANGS_SEC)
            time.sleep(WITHIN_SEC)
            (tmp_path / f"early-{len(list(tmp_path.glob('joined-*')))}").touch()

    def be_agent(node: int) -> None:
        os.environ[node_records.RANK] = str(node)
        if node == 0:
            os.register_at_fork(before=hold_second_fork)
        torchrun.launch(config, tmp_path, {})

    agents = [multiprocessing.get_context("fork").Process(target=be_agent, args=(node,)) for node in range(nodes)]
    for agent in agents:
        agent.start()
    for agent in agents:
        agent.join(HANGS_SEC)
    assert {path.name for path in tmp_path.glob("[ej]*")} == {"early-0", *(f"joined-{n}" for n in range(2 * nodes))}
