"""Networks of MiniGo play each other, and a search without kernels plays as well as the one with them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.steps import minigo_match
from tests.trainers.models.minigo_parts import net
from trainers.models.minigo.frozen import CHAMPION, digest_of


@pytest.mark.parametrize("plain", [False, True])
def test_each_pair_plays_its_games(tmp_path: Path, capsys: pytest.CaptureFixture[str], plain: bool) -> None:
    nets = {tmp_path / f"{seed}.pt": net(seed) for seed in range(3)}
    for file, made in nets.items():
        weights = {CHAMPION + name: tensor for name, tensor in made.state_dict().items()}
        torch.save({"state_dict": weights, "config": {"model": {"hparams": vars(made.sizes) | {"komi": 0.5}}}}, file)
    options = ["--games", "4", "--readouts", "4", "--leaves", "2", *["--plain"] * plain]
    assert minigo_match.main([*map(str, nets), *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [f"{file}: network {digest_of(made)}" for file, made in nets.items()]
    first, second, third = nets
    pairs = [line.split(": ")[0] for line in lines[3:]]
    assert pairs == [f"{first} against {second}", f"{first} against {third}", f"{second} against {third}"]
    assert all(" of 4, 0." in line or " of 4, 1." in line for line in lines[3:])
