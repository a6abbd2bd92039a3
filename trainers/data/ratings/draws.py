"""Draws the negatives of an epoch on the device; they do not depend on the number of processes."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class RatedItems:
    """The training ratings on a device, in a form that gives the items that a user has not rated."""

    num_items: int
    start: torch.Tensor  # int64 [U + 1]
    users: torch.Tensor  # int32 [P], ascending
    items: torch.Tensor  # int32 [P], ascending within a user
    gaps: torch.Tensor  # int64 [P], ascending: user * I + number of unrated items before this one

    def unrated(self, users: torch.Tensor, bits: torch.Tensor) -> torch.Tensor:
        """Return a uniformly random item that each user has not rated: int64, shaped as `users`.

        The n-th unrated item is found by bisection; the reference draws again until an item is unrated.

        Args:
            users: int64
            bits: int64 random bits of the same shape
        """
        first = self.start[users]
        num_unrated = self.num_items - (self.start[users + 1] - first)
        chosen = (bits & 2**62 - 1) % num_unrated
        num_before = torch.searchsorted(self.gaps, users * self.num_items + chosen, right=True) - first
        return chosen + num_before


def rated_items(num_items: int, start: torch.Tensor, items: torch.Tensor) -> RatedItems:
    """Return RatedItems from start int64 [U + 1] and items int32 [P], on their device."""
    numbers = torch.arange(len(start) - 1, device=start.device)
    users = torch.repeat_interleave(numbers, start.diff(), output_size=len(items))
    rank = torch.arange(len(items), device=items.device) - start[users]
    return RatedItems(num_items, start, users.int(), items, users * num_items + items - rank)
