"""The negatives of an epoch, drawn on the device. They do not depend on how many processes share them."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class RatedItems:
    """The ratings to train on, on a device: which items a user has not rated follows from it."""

    num_items: int
    start: torch.Tensor  # int64 [U + 1]
    users: torch.Tensor  # int32 [P], ascending
    items: torch.Tensor  # int32 [P], ascending within a user
    gaps: torch.Tensor  # int64 [P], ascending: user * I + how many items before this one the user has not rated

    def unrated(self, users: torch.Tensor, bits: torch.Tensor) -> torch.Tensor:
        """A random item that the user did not rate, each with the same probability: int64, shaped as `users`.

        The n-th of them is found by bisection, where the reference draws again until the item is none that was rated.

        Args:
            users: int64
            bits: int64, random, of the same shape
        """
        first = self.start[users]
        num_unrated = self.num_items - (self.start[users + 1] - first)
        chosen = (bits & 2**62 - 1) % num_unrated
        num_before = torch.searchsorted(self.gaps, users * self.num_items + chosen, right=True) - first
        return chosen + num_before


def rated_items(num_items: int, start: torch.Tensor, items: torch.Tensor) -> RatedItems:
    """Of start int64 [U + 1] and items int32 [P], on their device."""
    numbers = torch.arange(len(start) - 1, device=start.device)
    users = torch.repeat_interleave(numbers, start.diff(), output_size=len(items))
    rank = torch.arange(len(items), device=items.device) - start[users]
    return RatedItems(num_items, start, users.int(), items, users * num_items + items - rank)
