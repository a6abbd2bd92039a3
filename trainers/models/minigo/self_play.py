"""Plays a generation of games of a network against itself, and collects their positions."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from trainers.models.minigo.positions import Positions, words_of
from trainers.ops.chance.counters import key_of, random_bits
from trainers.ops.chance.dice import MOVE
from trainers.ops.go import Boards, Rules
from trainers.ops.tree_search import Dice, Search

SELF_PLAY, NEVER = range(2)  # keys of random numbers by use
PARTS = 1 << 16
FEWER = (2, 4)  # the slots over these are those of the smaller searches


@dataclass(frozen=True)
class Customs:
    """How games are played, beyond the rules.

    A player whose search expects less than `resign_at` resigns, except in a share `never_resign` of the games. The
    first `temperature_moves` moves are drawn in proportion to visits; later ones are the most visited. In matches
    `match_temperature_moves` are drawn.
    """

    resign_at: float = -0.9
    never_resign: float = 0.05
    temperature_moves: int = 7
    match_temperature_moves: int = 2


@dataclass(frozen=True)
class Played:
    """Results of a process's games. `evaluations` counts leaves of running games only."""

    positions: Positions
    games: int
    moves: int
    evaluations: int
    black_wins: int
    resigned: int


class SelfPlay:
    """Plays the games with these numbers in the slots of a search.

    A step takes as long with few games as with many. So when half of the slots have no game any more, a search of the
    other half goes on, and later one of a quarter.
    """

    def __init__(self, rules: Rules, search: Search, customs: Customs, numbers: torch.Tensor, seed: int) -> None:
        self.rules, self.customs, self._seed = rules, customs, seed
        slots = search.trees.num_games
        self.searches = [search, *(search.first(slots // part) for part in FEWER if slots >= part)]
        self._numbers = torch.cat([numbers, numbers.new_zeros(1)])  # The last entry is for slots without a game.
        self._num_games, self._slots = len(numbers), slots

    @torch.no_grad()
    def play(self, generation: int) -> Played:
        device, rules = self._numbers.device, self.rules
        kept = Positions.room(self._num_games * rules.max_moves + 1, rules, device)
        lengths = torch.zeros(self._num_games + 1, dtype=torch.int64, device=device)
        winners = torch.zeros(self._num_games + 1, dtype=torch.int8, device=device)
        sums = torch.zeros(3, dtype=torch.int64, device=device)  # moves, evaluations, resignations
        game = torch.arange(self._slots, device=device).clamp(max=self._num_games)
        begun = torch.tensor(min(self._slots, self._num_games), device=device)
        start = rules.start(self._slots, device)
        search = self.searches[0]
        search.restart(torch.ones_like(start.over), start)
        active = game < self._num_games
        while running := int(active.sum()):  # the only wait for the device in a move
            smallest = [search for search in self.searches if search.trees.num_games >= running][-1]
            if smallest is not search:  # No game waits for a slot any more.
                left = active.argsort(descending=True, stable=True)[: smallest.trees.num_games]
                search.trees.move_up(left)
                search, game, active, start = smallest, game[left], active[left], start.take(left)
            dice = Dice(self._numbers[game], self._seed, generation, SELF_PLAY)
            boards = search.trees.roots().map(torch.clone)
            search.run(active, dice)
            counts, values = search.counts().clone(), search.trees.root_values()
            self._keep(kept, active, game, boards, counts)
            moves = chosen(counts, boards, dice, self.customs.temperature_moves)
            resigned = active & (values < self.customs.resign_at) & ~self._never(game, generation)
            after = rules.play(boards, moves)
            ended = active & (resigned | after.over)
            winner = torch.where(resigned, -boards.to_play, rules.area_score(after).sign().to(torch.int8))
            place = torch.where(ended, game, self._num_games)
            winners.scatter_(0, place, winner)
            lengths.scatter_(0, place, boards.moves.long() + 1)
            evaluations = active.sum() * search.settings.readouts
            sums += torch.stack([(active & ~resigned).sum(), evaluations, resigned.sum()])
            search.advance(moves, active & ~ended)
            following = begun + ended.cumsum(dim=0) - 1
            game = torch.where(ended, following, game).clamp(max=self._num_games)
            begun = begun + ended.sum()
            active = game < self._num_games
            search.restart(ended & active, start)
        return self._played(kept, lengths[:-1], winners[:-1], sums)

    def _keep(
        self, kept: Positions, active: torch.Tensor, game: torch.Tensor, boards: Boards, counts: torch.Tensor
    ) -> None:
        """Store the positions in which a move is due; outcomes are filled in when the games have ended."""
        place = game * self.rules.max_moves + boards.moves.long()
        place = torch.where(active, place, self._num_games * self.rules.max_moves)
        policies = counts / counts.sum(dim=1, keepdim=True).clamp(min=1)
        kept.put(
            place, Positions(words_of(boards), boards.to_play > 0, policies.half(), torch.zeros_like(boards.to_play))
        )

    def _never(self, game: torch.Tensor, generation: int) -> torch.Tensor:
        """Return the games in which nobody resigns; they show whether resigning is right."""
        bits = random_bits(self._numbers[game], key_of(self._seed, generation, NEVER))
        return bits % PARTS < self.customs.never_resign * PARTS

    def _played(self, kept: Positions, lengths: torch.Tensor, winners: torch.Tensor, sums: torch.Tensor) -> Played:
        per_game = (self._num_games, self.rules.max_moves)
        played = torch.arange(self.rules.max_moves, device=lengths.device) < lengths[:, None]
        whole = Positions(*(tensor[:-1] for tensor in kept))
        black = whole.black.view(per_game)
        outcomes = torch.where(black, winners[:, None], -winners[:, None]).flatten()
        positions = whole._replace(outcomes=outcomes).take(played.flatten())
        moves, evaluations, resigned = sums.tolist()
        return Played(positions, self._num_games, moves, evaluations, int((winners > 0).sum()), resigned)


def chosen(counts: torch.Tensor, boards: Boards, dice: Dice, temperature_moves: int) -> torch.Tensor:
    """Choose moves by visits, int32 [G, A]: drawn in proportion early in a game, the most visited one later."""
    sums = counts.cumsum(dim=1)
    drawn = (dice.uniform(MOVE, boards.moves, 1) * sums[:, -1:]).long()
    by_chance = (sums > drawn).to(torch.int8).argmax(dim=1)
    return torch.where(boards.moves < temperature_moves, by_chance, counts.argmax(dim=1))
