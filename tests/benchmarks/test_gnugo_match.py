"""A network's match against GNU Go is played to its end, and its result is given with an interval."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
import torch

from benchmarks.peers import gnugo_match
from trainers.models.minigo.frozen import CHAMPION, digest_of
from trainers.models.minigo.network import GoNet, Sizes
from trainers.ops.go import gnugo


@pytest.mark.slow
@pytest.mark.skipif(gnugo.installed() is None, reason="GNU Go is not installed: apt-get install gnugo")
def test_an_untrained_network_plays_gnu_go(tmp_path: Path) -> None:
    sizes = Sizes(5, filters=4, blocks=1, dense=4)
    net = GoNet(sizes)
    hparams = vars(sizes) | {"komi": 0.5}
    saved = {
        "state_dict": {CHAMPION + name: tensor for name, tensor in net.state_dict().items()},
        "config": {"model": {"hparams": hparams}},
    }
    torch.save(saved, tmp_path / "model.pt")
    asked = argparse.Namespace(model=tmp_path / "model.pt", games=4, level=1, readouts=4, leaves=2, seed=0)
    wins, digest = gnugo_match.match(asked, torch.device("cpu"))
    assert 0 <= wins <= 2, "GNU Go is better than chance"
    assert digest == digest_of(net)


def test_wins_are_said_with_their_interval_and_in_elo() -> None:
    assert gnugo_match.summary(50, 100) == ("50 of 100 games won, 0.50 [0.40, 0.60]; Elo over GNU Go +0 [-68, +68]")
    assert gnugo_match.summary(0, 100).endswith("Elo over GNU Go -920 [-920, -566]")
