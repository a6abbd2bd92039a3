"""Positions of games that a model plays against itself: there are no files, and no data before the first generation.

A training batch of B positions has:

    planes    float32 [B, 17, N, N]
    policies  float32 [B, N*N + 1], shares of a search's visits
    outcomes  float32 [B], 1 if the player to move won, else -1
    weights   float32 [B], 1 / B

The single evaluation batch has `cases`, int64 [K]: the numbers of this process's games and positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from conf.schema import ConfigError

if TYPE_CHECKING:
    from trainers.data.loading.types import Batch, Shard


DRAWN = 200  # key of random numbers; games and matches of the same seed and generation use smaller keys


class Source(Protocol):
    """The source of a generation's positions."""

    def sample(self, number: int, *key: int) -> dict[str, Any]:
        """Return `number` positions, as in a batch; the key and the games played determine them."""
        ...


@dataclass(frozen=True)
class PlayView:
    """What the model defines of the data."""

    board: int  # N
    source: Source
    examples: int  # positions that a generation trains on
    num_cases: int  # of an evaluation
    facts: Callable[[], dict[str, str]] = dict  # tags that identify the networks


class SelfPlayData:
    """Implements Data, Viewable and Recorded of trainers.data.loading.types; without a model's view it has no data."""

    name = "selfplay"

    def __init__(self, *, view: PlayView | None = None) -> None:
        self._view = view

    @property
    def view(self) -> PlayView:
        if self._view is None:
            raise ConfigError(f"dataset={self.name}: the model has to play it itself. Next: give model=minigo")
        return self._view

    @property
    def num_eval(self) -> int:
        return self.view.num_cases

    def viewed(self, view: PlayView) -> SelfPlayData:
        return SelfPlayData(view=view)

    def facts(self) -> dict[str, str]:
        return self.view.facts()

    def write_record(self, run_dir: Path) -> None:
        """Do nothing: the tags hold all facts."""

    def example_batches(self, batch_size: int, device: torch.device) -> list[Batch]:
        size, generator = self.view.board, torch.Generator().manual_seed(0)
        planes = (torch.rand(batch_size, 17, size, size, generator=generator) < 0.2).float()
        policies = torch.rand(batch_size, size**2 + 1, generator=generator)
        outcomes = (torch.rand(batch_size, generator=generator) < 0.5).float() * 2 - 1
        made = {"planes": planes, "policies": policies / policies.sum(dim=1, keepdim=True), "outcomes": outcomes}
        batch = {name: tensor.to(device) for name, tensor in made.items()}
        return [weighted(batch, batch_size, device) | {"cases": torch.zeros(0, dtype=torch.int64, device=device)}]

    def train_loader(self, batch_size: int, seed: int, shard: Shard) -> PositionLoader:
        return PositionLoader(self.view, batch_size, seed, shard)

    def eval_loader(self, batch_size: int, shard: Shard) -> CaseLoader | None:
        return CaseLoader(self.view.num_cases, shard) if self.view.num_cases else None

    def test_loader(self, batch_size: int, shard: Shard) -> None:
        return None


class PositionLoader:
    """A generation's batches. Each process draws from its own games; `examples` counts all processes."""

    def __init__(self, view: PlayView, batch_size: int, seed: int, shard: Shard) -> None:
        self._view, self._batch_size, self._seed, self._shard = view, batch_size, seed, shard
        self._epoch = 0

    def __len__(self) -> int:
        return self._view.examples // (self._batch_size * self._shard.world_size)

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __iter__(self) -> Iterator[Batch]:
        for number in range(len(self)):
            key = (self._seed, self._epoch, DRAWN, self._shard.rank, number)
            yield weighted(self._view.source.sample(self._batch_size, *key), self._batch_size, self._shard.device)


class CaseLoader:
    """A loader of one batch with the cases of this process."""

    def __init__(self, num_cases: int, shard: Shard) -> None:
        self._num_cases, self._shard = num_cases, shard

    def __len__(self) -> int:
        return 1

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: an evaluation is the same in all epochs."""

    def __iter__(self) -> Iterator[Batch]:
        cases = torch.arange(self._shard.rank, self._num_cases, self._shard.world_size, device=self._shard.device)
        yield {"cases": cases, "num_samples": len(cases)}


def weighted(batch: dict[str, Any], number: int, device: torch.device) -> Batch:
    return {**batch, "weights": torch.full((number,), 1 / number, device=device), "num_samples": number}
