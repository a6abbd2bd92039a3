"""Random numbers that follow from a counter: any of them can be drawn without those before it.

They are the same on every device, in every process and with every version of PyTorch. Nothing here makes the host wait
for the device.
"""

from __future__ import annotations

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
