"""Positions of games that a model plays against itself: no files, and nothing there before the first generation.

A batch for training, of B positions:

    planes    float32 [B, 17, N, N]
    policies  float32 [B, N*N + 1], shares of a search's visits
    outcomes  float32 [B], 1 where the player to move won, else -1
    weights   float32 [B], 1 / B

A batch for evaluation has `cases`, int64 [K]: the numbers of this process's games and positions, all in one batch.
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


DRAWN = 200  # what random numbers are for; games and matches of the same seed and generation use smaller numbers


class Source(Protocol):
    """Where the positions of a generation come from."""

    def sample(self, number: int, *key: int) -> dict[str, Any]:
        """So many positions, as in a batch; they follow from the key and from what has been played."""
        ...


@dataclass(frozen=True)
class PlayView:
    """What a model makes of the data: N, its positions, how many of them a generation trains on, how many cases an
    evaluation has, and tags that name its networks."""

    board: int
    source: Source
    examples: int
    num_cases: int
    facts: Callable[[], dict[str, str]] = dict


class SelfPlayData:
    """Implements Data, Viewable and Recorded of trainers.data.loading.types; before a model has its view there are no
    batches."""

    name = "selfplay"

    def __init__(self, *, view: PlayView | None = None) -> None:
        self._view = view

    @property
    def view(self) -> PlayView:
        if self._view is None:
            raise ConfigError(f"dataset={self.name}: is played by the model itself; train model=minigo on it")
        return self._view

    @property
    def num_eval(self) -> int:
        return self.view.num_cases

    def viewed(self, view: PlayView) -> SelfPlayData:
        return SelfPlayData(view=view)

    def facts(self) -> dict[str, str]:
        return self.view.facts()

    def write_record(self, run_dir: Path) -> None:
        """The tags say all."""

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
    """A generation's batches. Each process draws from its own games, so that a generation's number of samples is that
    of all its processes."""

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
    """One batch: the cases of this process."""

    def __init__(self, num_cases: int, shard: Shard) -> None:
        self._num_cases, self._shard = num_cases, shard

    def __len__(self) -> int:
        return 1

    def set_epoch(self, epoch: int) -> None:
        """An evaluation is the same at every epoch."""

    def __iter__(self) -> Iterator[Batch]:
        cases = torch.arange(self._shard.rank, self._num_cases, self._shard.world_size, device=self._shard.device)
        yield {"cases": cases, "num_samples": len(cases)}


def weighted(batch: dict[str, Any], number: int, device: torch.device) -> Batch:
    return {**batch, "weights": torch.full((number,), 1 / number, device=device), "num_samples": number}
