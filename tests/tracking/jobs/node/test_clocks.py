"""Nodes whose clocks are not set are refused before they train."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from conf.schema import ConfigError
from tests.support.studied import config
from tracking.jobs.node.node_files import NodeState, OwnFile
from tracking.jobs.node.nodes import Nodes
from tracking.record import run_folder


@pytest.mark.parametrize(("apart_sec", "words"), [(300, "300 s ahead of that of"), (-180, "180 s behind that of")])
def test_clocks_that_are_minutes_apart_are_refused(apart_sec: int, words: str, tmp_path: Path) -> None:
    asked = config(gpus=0, nodes=2, runs_dir=str(tmp_path / "runs"))
    place = tmp_path / "runs/run/.nodes-1-0-0"
    every = Nodes(asked, place)
    try:
        own = json.loads((place / "0.json").read_text())
        assert abs(own["time_ms"] - run_folder.now_ms()) < 60_000
        other = NodeState("b", own["runs_dir"], own["asked"], beat=1, time_ms=run_folder.now_ms() + 1000 * apart_sec)
        (place / "1.json").write_text(json.dumps(dataclasses.asdict(other)))
        with pytest.raises(ConfigError, match=f"the clock of b is {words}"):
            every.meet()
    finally:
        every.close()


def test_clocks_that_are_set_are_no_trouble(tmp_path: Path) -> None:
    asked = config(gpus=0, nodes=2, runs_dir=str(tmp_path / "runs"))
    every = Nodes(asked, tmp_path / "runs/run/.nodes-1-0-0")
    state = json.loads((tmp_path / "runs/run/.nodes-1-0-0/0.json").read_text())
    other = OwnFile(tmp_path / "runs/run/.nodes-1-0-0/1.json", NodeState("b", state["runs_dir"], state["asked"]))
    try:
        every.meet()
        assert every.names[1] == "b"
    finally:
        other.close()
        every.close()
