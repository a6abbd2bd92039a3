"""Ratings, MovieLens' or generated ones, as a dataset for recommenders.

Generated ones come from a latent-factor model, up to the size of MovieLens 20M: equal everywhere, without a download.
They have no times: the held-out item is a random one of the user's.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from trainers.data.latent_factors.model import ML_20M
from trainers.data.loading.version import digest
from trainers.data.ratings import movielens_files
from trainers.data.ratings.draws import RatedItems, rated_items
from trainers.data.ratings.interactions import Interactions
from trainers.data.ratings.loader import GROUP, NEGATIVES, EvalLoader, TrainLoader, groups
from trainers.data.ratings.synthetic import example_batch
from trainers.ops.chance.counters import key_of

if TYPE_CHECKING:
    from trainers.data.loading.types import Batch, Shard

from conf.schema import ConfigError
from trainers.data.cached import Arrays, cached_arrays
from trainers.data.latent_factors import Model, all_picks
from trainers.data.ratings.interactions import hold_one_out

FORMAT = 1  # version of the generated ratings; raise it when they change
SMALLEST = 1000


def movielens(path: str) -> RatingsData:
    """Return a MovieLens dataset from its original files in folder `path`. Raises ConfigError for other files."""
    return RatingsData("movielens", movielens_files.load(path))


def ratings(size: int = ML_20M) -> RatingsData:
    """Return generated ratings, `size` of them to train on. Raises ConfigError for an invalid size."""
    return RatingsData("ratings", generated(size))


class RatingsData:
    """Implements Data and Grouped of trainers.data.loading.types. Arrays are copied to a device at its first batch."""

    group_size = GROUP

    def __init__(self, name: str, interactions: Interactions) -> None:
        self.name, self.interactions = name, interactions
        self.num_users, self.num_items = interactions.num_users, int(interactions.num_items)
        self._rated: dict[torch.device, RatedItems] = {}

    def example_batches(self, batch_size: int, device: torch.device) -> list[Batch]:
        # Compile the kernel that draws negatives before the clock starts, without copying the ratings.
        of_one = rated_items(2, torch.tensor([0, 1], device=device), torch.zeros(1, dtype=torch.int32, device=device))
        groups(of_one, torch.zeros(1, dtype=torch.int64, device=device), key_of(NEGATIVES))
        return [example_batch(batch_size, self.num_users, self.num_items, device)]

    def train_loader(self, batch_size: int, seed: int, shard: Shard) -> TrainLoader:
        return TrainLoader(partial(self._rated_on, shard.device), self.interactions.num_train, batch_size, seed, shard)

    def eval_loader(self, batch_size: int, shard: Shard) -> EvalLoader:
        def held_out() -> torch.Tensor:
            return on_device(self.interactions.held_out, shard.device).long()

        return EvalLoader(partial(self._rated_on, shard.device), held_out, self.num_users, batch_size, shard)

    def test_loader(self, batch_size: int, shard: Shard) -> None:
        return None

    def version(self) -> str:
        held = self.interactions
        return digest([held.num_items, held.start, held.items, held.held_out])

    def _rated_on(self, device: torch.device) -> RatedItems:
        if device not in self._rated:
            start, items = (on_device(array, device) for array in (self.interactions.start, self.interactions.items))
            self._rated[device] = rated_items(self.num_items, start, items)
        return self._rated[device]


def on_device(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """Return a copy on the device; PyTorch must not get arrays that are memory-mapped read-only."""
    return torch.from_numpy(np.array(array)).to(device)


def generated(size: int) -> Interactions:
    """Return `size` training ratings, made once and cached. Raises ConfigError for an invalid size."""
    if not SMALLEST <= size <= ML_20M:
        raise ConfigError(f"dataset.size={size}: must be {SMALLEST} to {ML_20M} (as MovieLens 20M) ratings to train on")
    return Interactions(**cached_arrays("ratings", [], str(size), FORMAT, lambda: generate(size)))


def generate(size: int) -> Arrays:
    """Return the arrays of `Interactions`, computed on all cores."""
    model = Model.of_size(size)
    items = all_picks(size, model)
    return hold_one_out(model.counts, items, model.rng.random_sample(len(items)), model.num_items)
