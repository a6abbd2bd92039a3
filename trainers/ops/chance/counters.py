"""Random numbers computed from a counter: each can be drawn without drawing earlier ones.

They are equal on all devices, in all processes and with all versions of PyTorch. The host does not wait for the device.
"""

from __future__ import annotations

import torch

# SplitMix64 (G. Steele et al. 2014, doi:10.1145/2660193.2660195): a bijection of 64 bits.
GAMMA, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
WORD = 2**64


def key_of(*words: int) -> int:
    """Return the 64-bit key of the random stream that these integers identify."""
    key = 0
    for word in words:
        key = (key + word + 1) * GAMMA % WORD
        key = (key ^ key >> 30) * FIRST % WORD
        key = (key ^ key >> 27) * SECOND % WORD
        key ^= key >> 31
    return key


def random_bits(counters: torch.Tensor, key: int) -> torch.Tensor:
    """Return 64 random bits for each counter, as int64; different counters of a key give different bits."""
    bits = counters * signed(GAMMA) + signed(key)
    bits = (bits ^ shifted(bits, 30)) * signed(FIRST)
    bits = (bits ^ shifted(bits, 27)) * signed(SECOND)
    return bits ^ shifted(bits, 31)


def signed(word: int) -> int:
    """Return the same 64 bits as a signed integer; PyTorch's products keep the lowest 64 bits."""
    return word - WORD if word >= WORD // 2 else word


def shifted(bits: torch.Tensor, by: int) -> torch.Tensor:
    """Shift to the right, filling with zeros."""
    return bits >> by & (1 << 64 - by) - 1


def shuffled(num: int, key: int, device: torch.device) -> torch.Tensor:
    """Return 0 to num - 1 in a random order, int64 [num]."""
    return random_bits(torch.arange(num, device=device), key).argsort()
