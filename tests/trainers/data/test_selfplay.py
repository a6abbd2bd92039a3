"""Batches of self-play: what their random numbers follow from."""

from __future__ import annotations

from typing import Any

import torch

from trainers.data.loading.types import Shard
from trainers.data.selfplay import PlayView, SelfPlayData
from trainers.models.minigo.arena import EVALUATION, GATE
from trainers.models.minigo.self_play import NEVER, SELF_PLAY


class Noted:
    def __init__(self) -> None:
        self.keys: list[tuple[int, ...]] = []

    def sample(self, number: int, *key: int) -> dict[str, Any]:
        self.keys.append(key)
        return {}


def test_positions_are_drawn_by_other_random_numbers_than_the_games_are_played_by() -> None:
    source = Noted()
    data = SelfPlayData().viewed(PlayView(3, source, 12, 0))
    for rank in range(2):
        loader = data.train_loader(2, 7, Shard(rank, 2, torch.device("cpu")))
        loader.set_epoch(4)
        assert len([*loader]) == 3
    assert {key[:2] for key in source.keys} == {(7, 4)}
    assert not {key[2] for key in source.keys} & {SELF_PLAY, NEVER, GATE, EVALUATION}
    assert len({*source.keys}) == 6
