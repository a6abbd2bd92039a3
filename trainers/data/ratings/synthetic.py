"""Pairs generated on the device, for the warm-up and to measure the device without drawing negatives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from conf.schema import ConfigError
from trainers.data.loading.synthetic_loader import SyntheticLoader
from trainers.data.ratings.loader import GROUP, NUM_CANDIDATES, NUM_NEGATIVES, groups_in

if TYPE_CHECKING:
    from trainers.data.loading.types import Batch, Shard

USERS, ITEMS = 138_493, 26_744  # as in MovieLens 20M
# A positive's place among U users or I items is U or I times a uniform number to this power.
SKEW = 3.0


def example_batch(batch_size: int, num_users: int, num_items: int, device: torch.device, seed: int = 0) -> Batch:
    """Return a batch for both training and evaluation, with as many samples as fit into `batch_size`, at least a group.

    Popular users and items have many ratings, as in real data, because their gradients collide. It uses a separate
    generator, so that warming up does not change the run's random numbers.
    """
    generator = torch.Generator(device).manual_seed(seed)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator, device=device)

    num_groups, num_eval = max(1, batch_size // GROUP), max(1, batch_size // NUM_CANDIDATES)
    positives = (uniform(num_groups, 1) ** SKEW * num_items).long()
    negatives = (uniform(num_groups, NUM_NEGATIVES) * num_items).long()
    return {
        "users": (uniform(num_groups) ** SKEW * num_users).long().clamp(max=num_users - 1),
        "items": torch.cat((positives, negatives), dim=1).clamp(max=num_items - 1),
        "weights": torch.full((num_groups,), 1.0 / num_groups, device=device),
        "num_samples": num_groups * GROUP,
        "eval_users": (uniform(num_eval) * num_users).long().clamp(max=num_users - 1),
        "candidates": (uniform(num_eval, NUM_CANDIDATES) * num_items).long().clamp(max=num_items - 1),
        "positions": torch.full((num_eval,), NUM_CANDIDATES - 1, device=device),
        "eval_weights": torch.ones(num_eval, device=device),
    }


class SyntheticRatings:
    """Random pairs with MovieLens 20M's numbers of users and items, `size` samples an epoch, without an evaluation.

    Implements trainers.data.loading.types.Data and Grouped. Raises ConfigError for a size not made of whole groups.
    """

    name = "synthetic"
    group_size = GROUP
    num_users, num_items = USERS, ITEMS

    def __init__(self, size: int = 20 * 2**20 // GROUP * GROUP) -> None:
        if size < GROUP or size % GROUP:
            raise ConfigError(f"dataset.size={size}: counts positives and negatives. Next: give a multiple of {GROUP}")
        self.size = size

    def example_batches(self, batch_size: int, device: torch.device) -> list[Batch]:
        return [self.batch(batch_size, device, 0)]

    def batch(self, batch_size: int, device: torch.device, seed: int) -> Batch:
        return example_batch(batch_size, USERS, ITEMS, device, seed)

    def train_loader(self, batch_size: int, seed: int, shard: Shard) -> SyntheticLoader:
        num_groups = groups_in(batch_size)

        def generate(number: int) -> Batch:
            return self.batch(batch_size, shard.device, number)

        return GroupedLoader(self.size // GROUP, num_groups, seed, shard, generate)

    def eval_loader(self, batch_size: int, shard: Shard) -> None:
        return None

    def test_loader(self, batch_size: int, shard: Shard) -> None:
        return None


class GroupedLoader(SyntheticLoader):
    """Counts samples instead of groups."""

    def __iter__(self) -> Iterator[Batch]:
        for batch in super().__iter__():
            yield batch | {"num_samples": batch["num_samples"] * GROUP}
