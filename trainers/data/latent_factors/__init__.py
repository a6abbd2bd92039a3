"""Ratings out of a latent-factor model: which items each of many users picks. Without PyTorch, so that it starts soon.

User u picks item i, of those not yet picked, with a probability that is proportional to

    popularity(i) * exp(STRENGTH * taste(u) . kind(i))

Popularity falls with an item's place by a power law; tastes and kinds are normal vectors of FACTORS numbers. How much
users rate follows a log-normal distribution on top of 20 ratings, as MovieLens 20M's does.
"""

from __future__ import annotations

from trainers.data.latent_factors.model import Model
from trainers.data.latent_factors.picks import all_picks, picks_of_share

__all__ = ["Model", "all_picks", "picks_of_share"]
