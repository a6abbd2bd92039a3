"""Matches between two players, and the players: a network's search, and two without a network."""

from __future__ import annotations

from typing import Protocol

import torch

from trainers.models.minigo.self_play import chosen
from trainers.ops.chance.dice import MOVE
from trainers.ops.go import Boards, Rules
from trainers.ops.tree_search import Dice, Evaluate, Search, Settings


class Player(Protocol):
    def moves(self, boards: Boards, dice: Dice) -> torch.Tensor:
        """Return a legal move for each game, int64 [G]; any move for games that are over."""
        ...


class Searcher:
    """Plays by a network's search, which starts anew at each move, in up to `games` games at once."""

    def __init__(
        self, rules: Rules, evaluate: Evaluate, settings: Settings, games: int, device: torch.device,
        dtype: torch.dtype = torch.float32, temperature_moves: int = 2,
    ) -> None:  # fmt: skip
        self.search = Search(rules, evaluate, settings, games, device, dtype)
        self._games, self._temperature_moves = games, temperature_moves

    def moves(self, boards: Boards, dice: Dice) -> torch.Tensor:
        number = len(boards.over)
        slots = torch.arange(self._games, device=boards.over.device)
        padded = boards.take(slots.clamp(max=number - 1))
        self.search.restart(torch.ones_like(padded.over), padded)
        self.search.run(~padded.over & (slots < number), dice)
        return chosen(self.search.counts()[:number], boards, dice, self._temperature_moves)


class RandomPlayer:
    """Plays a uniformly random legal move; passes only if no other move is legal."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def moves(self, boards: Boards, dice: Dice) -> torch.Tensor:
        scores = self._rules.legal(boards).float()
        scores[:, -1] = 0.5
        return best(scores, boards, dice)


class OnePly:
    """Plays the move after which its area is largest, and breaks ties at random; passes if no move gains area."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def moves(self, boards: Boards, dice: Dice) -> torch.Tensor:
        legal, num_moves = self._rules.legal(boards), self._rules.num_moves
        every = torch.arange(legal.numel(), device=legal.device)
        after = self._rules.play(boards.take(every // num_moves), every % num_moves)
        areas = self._rules.area_score(after).view(legal.shape) * boards.to_play[:, None]
        areas[:, -1] += 0.5
        return best(areas.masked_fill(~legal, -torch.inf), boards, dice)


def best(scores: torch.Tensor, boards: Boards, dice: Dice) -> torch.Tensor:
    """Return the move with the highest score, for scores float32 [G, A]; ties are broken at random."""
    chance = dice.uniform(MOVE, boards.moves, scores.shape[1])
    return torch.where(scores == scores.amax(dim=1, keepdim=True), chance, 0.0).argmax(dim=1)


@torch.no_grad()
def wins_of(
    rules: Rules, first: Player, second: Player, games: torch.Tensor, num_games: int, key: tuple[int, ...]
) -> torch.Tensor:
    """Play the given games of a match of `num_games`; return which of them the first player wins, bool [G].

    The first player is black in the first half of the match. `key` seeds the match's random numbers.
    """
    halves = games[2 * games < num_games], games[2 * games >= num_games]
    sides = [rules.start(len(half), games.device) for half in halves]
    for move in range(rules.max_moves):
        for side, half in enumerate(halves):
            if len(half):
                player = (first, second)[(move + side) % 2]
                moves = player.moves(sides[side], Dice(half, *key, (move + side) % 2))
                sides[side] = rules.play(sides[side], moves)
        if all(bool(boards.over.all()) for boards in sides):
            break
    return torch.cat([rules.area_score(sides[0]) > 0, rules.area_score(sides[1]) < 0])
