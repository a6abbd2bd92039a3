"""No rank joins the process group before the agent has forked all of them."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

import trainers.loop.train
from tests.support.composing import composed
from tests.support.folders import wait_for
from tracking.record import run_folder
from trainers.loop.worker import rank

pytestmark = pytest.mark.slow

HANGS_SEC = 60.0


def test_a_rank_waits_for_those_that_are_forked_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(config: Any, run_dir: Path, environment: dict[str, str]) -> None:
        (run_dir / environment["RANK"]).touch()

    monkeypatch.setattr(trainers.loop.train, "train", train)
    monkeypatch.setattr(run_folder, "read_config", lambda run_dir: composed(["gpus=0", "cpu_processes=2"]))
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setattr(rank, "tell_libraries", lambda: None)
    forking = multiprocessing.get_context("fork")
    forked = forking.Barrier(2)
    ranks = [forking.Process(target=rank.run_rank, args=(tmp_path, {"RANK": name}, forked)) for name in "01"]
    ranks[0].start()
    wait_for(lambda: forked.n_waiting == 1, HANGS_SEC)
    assert not list(tmp_path.iterdir())
    ranks[1].start()
    for each in ranks:
        each.join(HANGS_SEC)
    assert {path.name for path in tmp_path.iterdir()} == {"0", "1"}
