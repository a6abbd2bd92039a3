"""MLPerf v0.5's target: the share of professional moves that a search of 1,000 readouts finds.

Each position is tried twice, as in the reference; here the second try sees the board rotated by 90 degrees.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from conf.schema import ConfigError
from trainers.data.go_records import professional_games
from trainers.ops.go import Boards, Rules, Symmetries
from trainers.ops.tree_search import Dice, Evaluate, Search, Settings

TRIES = 2
READOUTS, LEAVES = 1000, 8


class ProMoves:
    """Every position of some games, with the move played there."""

    def __init__(self, rules: Rules, games: Sequence[Sequence[int]], readouts: int = READOUTS) -> None:
        self.rules, self.settings = rules, Settings(readouts, LEAVES)
        boards: list[Boards] = []
        for moves in games:
            position = rules.start(1)
            for move in moves:
                boards.append(position)
                position = rules.play(position, torch.tensor([move]))
        self._boards = Boards(*(torch.cat(tensors) for tensors in zip(*boards, strict=True)))
        self._moves = torch.tensor([move for moves in games for move in moves])

    @property
    def num_cases(self) -> int:
        return TRIES * len(self._moves)

    def search_bytes(self, world_size: int) -> int:
        """Return the size of a process's search of its positions in bytes."""
        return -(-self.num_cases // world_size) * self.settings.bytes_per_game(self.rules)

    def search(self, evaluate: Evaluate, games: int, device: torch.device, dtype: torch.dtype) -> TurnedSearch:
        """Return a search of up to `games` positions at once."""
        return TurnedSearch(self.rules, evaluate, self.settings, games, device, dtype)

    def right(self, search: TurnedSearch, cases: torch.Tensor) -> torch.Tensor:
        """Return whether the search finds the professional's move in each of these cases, bool [K]."""
        if not len(cases):
            return cases > 0
        positions = cases.cpu() % len(self._moves)
        boards = self._boards.take(positions).map(lambda tensor: tensor.to(cases.device))
        return search.moves(boards, cases // len(self._moves)) == self._moves[positions].to(cases.device)


class TurnedSearch(Search):
    """A search whose network sees each game's board under a symmetry."""

    def __init__(
        self, rules: Rules, evaluate: Evaluate, settings: Settings, games: int, device: torch.device,
        dtype: torch.dtype,
    ) -> None:  # fmt: skip
        self._turns = torch.zeros(games, dtype=torch.int64, device=device)
        symmetries = Symmetries(rules.size, device)

        def turned(planes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            turns = self._turns.repeat_interleave(len(planes) // games, output_size=len(planes))
            logits, values = evaluate(symmetries.planes(planes, turns))
            return symmetries.policies(logits, symmetries.inverse(turns)), values

        super().__init__(rules, turned, settings, games, device, dtype)

    def moves(self, boards: Boards, turns: torch.Tensor) -> torch.Tensor:
        """Return the most visited move of each board, int64 [K]; `turns` are symmetries, int64 [K]."""
        number, slots = len(turns), torch.arange(self.trees.num_games, device=turns.device)
        places = slots.clamp(max=number - 1)
        self._turns.copy_(turns[places])
        self.restart(torch.ones_like(slots, dtype=torch.bool), boards.take(places))
        self.run(slots < number, Dice(slots, 0))
        return self.counts()[:number].argmax(dim=1)


def pro_games(rules: Rules) -> list[list[int]]:
    """Return the moves of MLPerf v0.5's four games. Raises ConfigError if the rules have another board or komi."""
    records = professional_games()
    size, komi = records[0].size, records[0].komi
    if (rules.size, rules.komi) != (size, komi):
        raise ConfigError(
            f"model.hparams.board={rules.size} with komi={rules.komi:g}: the professional games are on {size}x{size}"
            f" with komi={komi:g}. Next: give these, or model.hparams.pro_moves=false and targets against opponents"
        )
    return [list(record.moves) for record in records]
