"""What share of runs is proven by so many successes."""

from __future__ import annotations

CONFIDENCE = 0.95


def proven_share(num_good: int, n: int, confidence: float = CONFIDENCE) -> float:
    """The share that the true one is at least, one-sided: 0.37 for 3 of 3. 0 where none was good.

    Clopper and Pearson 1934, Biometrika 26, 404-413: the share at which so many or more successes have a probability
    of 1 - confidence.
    """
    from scipy.special import betaincinv

    return float(betaincinv(num_good, n - num_good + 1, 1 - confidence)) if num_good else 0.0
