"""Small networks, boards and games of MiniGo, for its tests."""

from __future__ import annotations

from typing import Any

import torch

from trainers.data.selfplay import SelfPlayData
from trainers.models.minigo.arena import Arena, Place
from trainers.models.minigo.matches import RandomPlayer
from trainers.models.minigo.module import MiniGo
from trainers.models.minigo.network import GoNet, Sizes
from trainers.models.minigo.play_options import Options
from trainers.models.minigo.self_play import Customs, Played
from trainers.ops.go import Boards, Rules
from trainers.ops.tree_search import Dice, Settings

CPU = torch.device("cpu")


SMALL = Sizes(board=3, filters=4, blocks=1, dense=8)


RULES = Rules(3, 0.5)


def net(seed: int = 0, sizes: Sizes = SMALL) -> GoNet:
    torch.manual_seed(seed)
    made = GoNet(sizes)
    for layer in made.convolutions():  # as after a training
        if layer.normalisation.affine:
            torch.nn.init.normal_(layer.normalisation.bias, std=0.1)
        assert layer.normalisation.running_mean is not None
        layer.normalisation.running_mean.normal_(std=0.1)
    return made


def played_boards(rules: Rules, games: int, moves: int, seed: int = 0) -> Boards:
    boards, dice = rules.start(games), Dice(torch.arange(games), seed)
    for _ in range(moves):
        boards = rules.play(boards, RandomPlayer(rules).moves(boards, dice))
    return boards


def options(**changed: Any) -> Options:
    given: dict[str, Any] = {
        "rules": RULES, "customs": Customs(temperature_moves=4), "games": 10, "games_at_once": 4,
        "search": Settings(8, 2, noise=True), "match": Settings(8, 2), "gate_games": 6, "gate": 0.55,
        "opponents": ("random", "one_ply"), "eval_games": 5, "seed": 3, "window": 1000,
    }  # fmt: skip
    return Options(**(given | changed))


def played(games: int = 10, **changed: Any) -> Played:
    given = options(games=games, **changed)
    return Arena(given, Place(0, 1, CPU), net(), net()).self_play(0)


def minigo(**hparams: Any) -> MiniGo:
    given: dict[str, Any] = {
        "board": 3, "komi": 0.5, "filters": 4, "blocks": 1, "dense": 8, "games": 4, "readouts": 8, "leaves": 2,
        "examples": 16, "window": 100, "pro_moves": False, "opponents": ["random"], "generations": 2,
    }  # fmt: skip
    return MiniGo(SelfPlayData(), 0.1, 1e-4, **(given | hparams))
