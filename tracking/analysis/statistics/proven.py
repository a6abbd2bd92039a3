"""The share of successes that a number of successful runs proves."""

from __future__ import annotations

CONFIDENCE = 0.95


def proven_share(num_good: int, n: int) -> float:
    """The one-sided lower bound of the true share of successes: 0.37 for 3 of 3; 0 without a success.

    Clopper and Pearson 1934, Biometrika 26, 404-413: the share at which `num_good` or more successes have a probability
    of 1 - CONFIDENCE.
    """
    from scipy.special import betaincinv

    return float(betaincinv(num_good, n - num_good + 1, 1 - CONFIDENCE)) if num_good else 0.0
