"""Random numbers of games: each is computed from the game's number, its move and its purpose.

A game is therefore the same in any slot and on any number of devices.
"""

from __future__ import annotations

import math

import torch

from trainers.ops.chance.counters import key_of, random_bits

MOST_MOVES, MOST_DRAWS = 1 << 12, 1 << 13
TRIES = 4  # of rejection sampling; each try accepts at least 95 %
NOISE, MOVE = range(2)  # purposes of a number


class Dice:
    """Random numbers of `games`, given by game number, int64 [G]. `key` separates generations and matches of a run."""

    def __init__(self, games: torch.Tensor, *key: int) -> None:
        self.games, self._key = games, key

    def uniform(self, purpose: int, moves: torch.Tensor, draws: int) -> torch.Tensor:
        """Return numbers between 0 and 1, both excluded, float64 [G, draws], for each game's move, [G]."""
        counters = (self.games * MOST_MOVES + moves.long())[:, None] * MOST_DRAWS
        counters = counters + torch.arange(draws, device=self.games.device)
        bits = random_bits(counters, key_of(*self._key, purpose))
        return ((bits >> 12 & (1 << 52) - 1) + 0.5) * 2.0**-52

    def dirichlet(self, moves: torch.Tensor, legal: torch.Tensor, alpha: float) -> torch.Tensor:
        """Return distributions over the legal moves, bool [G, A], with equal concentrations: float32 [G, A]."""
        num = legal.shape[1]
        draws = self.uniform(NOISE, moves, num * (3 * TRIES + 1)).view(len(legal), 3 * TRIES + 1, num)
        weights = gamma(draws, alpha) * legal
        return (weights / weights.sum(dim=1, keepdim=True)).float()


def gamma(uniform: torch.Tensor, alpha: float) -> torch.Tensor:
    """Return gamma variates of shape `alpha`, [G, A], from uniform numbers, [G, 3 TRIES + 1, A].

    The method is G. Marsaglia and W. Tsang 2000, doi:10.1145/358407.358414, with a fixed number of tries; if all fail,
    the variate is the mode.
    """
    d = alpha + 1 - 1 / 3
    c = 1 / math.sqrt(9 * d)
    drawn = torch.full_like(uniform[:, 0], d)
    accepted = torch.zeros_like(drawn, dtype=torch.bool)
    for tried in range(TRIES):
        radius, angle, test = uniform[:, 3 * tried : 3 * tried + 3].unbind(1)
        normal = (-2 * radius.log()).sqrt() * (2 * math.pi * angle).cos()
        cubed = (1 + c * normal) ** 3
        safe = cubed.clamp(min=1e-30)
        fits = (cubed > 0) & (test.log() < normal**2 / 2 + d - d * safe + d * safe.log())
        drawn = torch.where(fits & ~accepted, d * safe, drawn)
        accepted = accepted | fits
    return drawn * uniform[:, -1] ** (1 / alpha)
