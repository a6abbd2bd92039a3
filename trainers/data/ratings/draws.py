"""Random numbers that follow from a counter, and the order and the negatives of an epoch made of them.

They are the same on every device, in every process and with every version of PyTorch, so that an epoch's batches do not
depend on how many processes share them. Nothing here makes the host wait for the device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

# SplitMix64 (G. Steele et al. 2014, doi:10.1145/2660193.2660195): a bijection of 64 bits.
GAMMA, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
WORD = 2**64


def key_of(*words: int) -> int:
    """A stream of random numbers, as a number of 64 bits: one for each sequence of whole numbers."""
    key = 0
    for word in words:
        key = (key + word + 1) * GAMMA % WORD
        key = (key ^ key >> 30) * FIRST % WORD
        key = (key ^ key >> 27) * SECOND % WORD
        key ^= key >> 31
    return key


def random_bits(counters: torch.Tensor, key: int) -> torch.Tensor:
    """64 random bits for each counter, int64 of both signs; different counters of a key have different ones."""
    bits = counters * signed(GAMMA) + signed(key)
    bits = (bits ^ shifted(bits, 30)) * signed(FIRST)
    bits = (bits ^ shifted(bits, 27)) * signed(SECOND)
    return bits ^ shifted(bits, 31)


def signed(word: int) -> int:
    """The same 64 bits as a number with a sign; PyTorch's products keep the lowest 64 bits."""
    return word - WORD if word >= WORD // 2 else word


def shifted(bits: torch.Tensor, by: int) -> torch.Tensor:
    """Shifted to the right, with zeros from the left."""
    return bits >> by & (1 << 64 - by) - 1


def shuffled(num: int, key: int, device: torch.device) -> torch.Tensor:
    """0 to num - 1 in a random order, int64 [num]."""
    return random_bits(torch.arange(num, device=device), key).argsort()


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
