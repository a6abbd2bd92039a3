"""Plays a process's games: self-play of a generation, the gate, and the games and positions of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.distributed as dist

from trainers.models.minigo.matches import OnePly, Player, RandomPlayer, Searcher, wins_of
from trainers.models.minigo.network import Evaluator, GoNet
from trainers.models.minigo.play_options import Options
from trainers.models.minigo.pro_moves import ProMoves, TurnedSearch
from trainers.models.minigo.self_play import Played, SelfPlay
from trainers.ops.tree_search import Search

GATE, EVALUATION = 100, 101  # keys of random numbers by use; after EVALUATION comes the opponent's index


@dataclass(frozen=True)
class Place:
    """A process's share of the games, and the device and dtype that it plays with."""

    rank: int
    world_size: int
    device: torch.device
    dtype: torch.dtype = torch.float32
    compile: bool = False


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def sections_of(options: Options, pro_moves: ProMoves | None) -> dict[str, int]:
    """Return the number of games or positions of an evaluation, by metric."""
    positions = {"pro_moves": pro_moves.num_cases} if pro_moves else {}
    return positions | {f"wins_{name}": options.eval_games for name in options.opponents}


class Arena:
    """Plays games. `champion` plays the games to train on; `candidate` is trained. Both are read before each play."""

    def __init__(
        self, options: Options, place: Place, champion: GoNet, candidate: GoNet, frozen: GoNet | None = None,
        pro_moves: ProMoves | None = None,
    ) -> None:  # fmt: skip
        self.options, self.place, self.pro_moves = options, place, pro_moves
        self._nets = {"champion": champion, "candidate": candidate} | ({"frozen": frozen} if frozen else {})
        self._evaluators = {name: Evaluator(net, place.dtype, place.compile) for name, net in self._nets.items()}

    def self_play(self, generation: int) -> Played:
        """Play this process's games of a generation with the champion."""
        self._take("champion")
        return self._self_play.play(generation)

    def gate(self, generation: int) -> torch.Tensor:
        """Play the gate's games of this process; return which of them the candidate wins, bool [G]."""
        self._take("champion", "candidate")
        num_games = self.options.gate_games
        players = self._searcher("candidate"), self._searcher("champion")
        games = self._share(num_games)
        return wins_of(self.options.rules, *players, games, num_games, (self.options.seed, generation, GATE))

    def evaluate(self, cases: torch.Tensor, generation: int) -> torch.Tensor:
        """Return each section's number of cases that were right or won, and its number of cases: float32 [2 * S].

        `cases` are numbered over all sections.
        """
        self._take("champion", *(name for name in self._nets if name == "frozen"))
        sums, first = [], 0
        for section, number in sections_of(self.options, self.pro_moves).items():
            part = cases[(cases >= first) & (cases < first + number)] - first
            sums += [self._section(section, part, generation).sum().float(), cases.new_tensor(len(part)).float()]
            first += number
        return torch.stack(sums)

    def _section(self, section: str, cases: torch.Tensor, generation: int) -> torch.Tensor:
        if section == "pro_moves":
            assert self.pro_moves is not None
            return self.pro_moves.right(self._pro_search, cases)
        name, options = section.removeprefix("wins_"), self.options
        key = (options.seed, generation, EVALUATION, options.opponents.index(name))
        players = self._searcher("champion"), self._opponent(name)
        return wins_of(options.rules, *players, cases, options.eval_games, key)

    def warm_up(self, evaluates: bool) -> None:
        """Make all searches; on a GPU or with compilation, also compile and capture them. No game is played."""
        searches = [*self._self_play.searches, *(self._searcher(name).search for name in self._nets)]
        searches += [self._pro_search] if evaluates and self.pro_moves else []
        if self.place.device.type == "cuda" or self.place.compile:
            for search in searches:
                search.warm_up()

    def _take(self, *names: str) -> None:
        for name in names:
            self._evaluators[name].take(self._nets[name])

    def _share(self, number: int) -> torch.Tensor:
        return torch.arange(self.place.rank, number, self.place.world_size, device=self.place.device)

    @cached_property
    def _self_play(self) -> SelfPlay:
        options, place = self.options, self.place
        search = Search(
            options.rules, self._evaluators["champion"], options.search, options.slots(place.world_size), place.device,
            place.dtype,
        )  # fmt: skip
        return SelfPlay(options.rules, search, options.customs, self._share(options.games), options.seed)

    def _searcher(self, name: str) -> Searcher:
        searchers: dict[str, Searcher] = self.__dict__.setdefault("_searchers", {})
        if name not in searchers:
            options, place = self.options, self.place
            most = -(-max(options.gate_games, options.eval_games) // place.world_size)
            searchers[name] = Searcher(
                options.rules, self._evaluators[name], options.match, most // 2 + 1, place.device, place.dtype,
                options.customs.match_temperature_moves,
            )  # fmt: skip
        return searchers[name]

    def _opponent(self, name: str) -> Player:
        if name == "frozen":
            return self._searcher(name)
        return RandomPlayer(self.options.rules) if name == "random" else OnePly(self.options.rules)

    @cached_property
    def _pro_search(self) -> TurnedSearch:
        assert self.pro_moves is not None
        place = self.place
        most = -(-self.pro_moves.num_cases // place.world_size)
        return self.pro_moves.search(self._evaluators["champion"], most, place.device, place.dtype)
