"""Ratings from a latent-factor model: the items that each of many users picks. Without PyTorch, to start quickly.

User u picks item i, among those not yet picked, with a probability proportional to

    popularity(i) * exp(STRENGTH * taste(u) . kind(i))

Popularity falls with an item's place by a power law; tastes and kinds are normal vectors of FACTORS numbers. The number
of a user's ratings is 20 plus a log-normal number, as in MovieLens 20M.
"""

from trainers.data.latent_factors.model import Model, all_picks, picks_of_share

__all__ = ["Model", "all_picks", "picks_of_share"]
