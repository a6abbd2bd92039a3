"""A node that still fetches its image is waited for, however long it takes, as long as it is alive."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from conf.schema import ConfigError
from tests.support.studied import config
from tracking.jobs.node import node_files, nodes
from tracking.jobs.node.node_files import NodeState
from tracking.jobs.node.nodes import Nodes
from tracking.record import run_folder

PLACE = "runs/run/.nodes-1-0-0"


class World:
    """A clock that runs only while a node sleeps. Both nodes write their files then."""

    every: Nodes

    def __init__(self, place: Path, rank: int, others_state: Callable[[float], NodeState | None]) -> None:
        self.now, self._place, self._rank, self._others_state = 0.0, place, rank, others_state

    def monotonic(self) -> float:
        return self.now

    def sleep(self, _: float) -> None:
        self.now += 0.9
        self.every._own.write()
        if state := self._others_state(self.now):
            own = json.loads((self._place / f"{1 - self._rank}.json").read_text())
            state.asked, state.beat, state.time_ms = own["asked"], int(10 * self.now), run_folder.now_ms()
            state.known = [own["token"]]
            (self._place / f"{self._rank}.json").write_text(json.dumps(asdict(state)))


def met_after(root: Path, patch: pytest.MonkeyPatch, rank: int, other: Callable[[float], NodeState | None]) -> float:
    """The seconds after which this node has met another one of this rank."""
    world = World(root / PLACE, rank, other)
    for module in (nodes, node_files):
        patch.setattr(module, "time", SimpleNamespace(monotonic=world.monotonic, sleep=world.sleep))
    every = Nodes(config(gpus=0, nodes=2, node_rank=1 - rank, runs_dir=str(root / "runs")), root / PLACE)
    world.every = every
    try:
        every.meet()
    finally:
        every.close()
    return world.now


@pytest.mark.parametrize("rank", [0, 1])
def test_a_node_that_prepares_is_waited_for(rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(now: float) -> NodeState:
        return NodeState("b", "", {}, token="t", preparing=now < 300, folder="run" if now > 320 else "")

    assert met_after(tmp_path, monkeypatch, rank, other) > 300


@pytest.mark.parametrize("rank", [0, 1])
def test_a_node_that_dies_as_it_prepares_is_not(rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(now: float) -> NodeState | None:
        return NodeState("b", "", {}, token="t", preparing=True) if now < 60 else None

    who = "1 of 2 nodes are" if rank else "node 0 is not"
    with pytest.raises(ConfigError, match=rf"nodes=2: {who} seen .*\(missing: node_rank={rank}\)"):
        met_after(tmp_path, monkeypatch, rank, other)


def test_the_head_node_tells_the_others_that_one_of_them_prepares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []

    def other(now: float) -> NodeState:
        told.append(json.loads((tmp_path / PLACE / "0.json").read_text())["preparing"])
        return NodeState("b", "", {}, token="t", preparing=now < 100)

    met_after(tmp_path, monkeypatch, 1, other)
    assert all(told[1:-3])


def test_who_is_started_by_hand_prepares_in_sight_of_the_others(tmp_path: Path) -> None:
    asked = config(gpus=0, nodes=2, runs_dir=str(tmp_path / "runs"), rendezvous="10.0.0.1:29500")
    path = tmp_path / "runs/.nodes-10.0.0.1-29500/0.json"
    with nodes.preparing([asked]):
        assert json.loads(path.read_text())["preparing"]
    assert not json.loads(path.read_text())["ended"], "it goes on"
    with pytest.raises(ConfigError, match="no image"), nodes.preparing([asked]):
        raise ConfigError("no image")
    state = NodeState(**json.loads(path.read_text()))
    assert state.failure
    assert (state.failure["kind"], state.failure["message"]) == ("bad_input", f"node {state.name}: no image")
    with nodes.preparing([config(gpus=0, runs_dir=str(tmp_path / "other"))]):
        assert not (tmp_path / "other").exists()
