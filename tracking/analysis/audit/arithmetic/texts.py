"""How numbers are printed, once more: a mean with its error, as the cells of a report's tables and its CSV have it."""

from __future__ import annotations

import math
from itertools import product

from tracking.analysis.audit.arithmetic.censored_means import Observations, moments_of


def close(claimed: float | None, expected: float | None, near: float, size: float) -> bool:
    if claimed is None or expected is None:
        return claimed is expected
    return math.isclose(claimed, expected, rel_tol=near, abs_tol=near * abs(size))


def text_of(mean: float, error: float | None, olympic: float | None, bound: str = "", invalid: bool = False) -> str:
    """To two digits of the error, and no more than six of the mean; without an error to four digits of the mean."""
    decimals = max(0, min(1 - _magnitude(error), 5 - _magnitude(mean)) if error else 3 - _magnitude(mean))
    text = f"{bound} {mean:,.{decimals}f}".strip()
    text += "" if error is None else f" ± {error:,.{decimals}f}"
    text += "" if olympic is None else f" (olympic {olympic:,.{decimals}f})"
    return text + (" (olympic invalid: several missed)" if invalid else "")


def _magnitude(value: float) -> int:
    return math.floor(math.log10(abs(value))) if value and math.isfinite(value) else 0


def is_invalid(n: int, num_short: int) -> bool:
    """Whether an olympic mean would be due, and too many runs missed their target for one."""
    return n >= 5 and num_short > 1


def says(sample: Observations, scale: float, text: str, near: float) -> bool:
    """Whether a text is the mean of a sample, whose numbers may be off by a relative `near`."""
    moments = moments_of(sample, scale)
    if moments is None:
        return not text
    n, *numbers = moments
    bound, invalid = "≥" if sample.num_short else "", is_invalid(n, sample.num_short)
    for shifts in product((1.0, 1 - near, 1 + near), repeat=3):
        mean, error, olympic = (
            None if value is None else shift * value for shift, value in zip(shifts, numbers, strict=True)
        )
        assert mean is not None
        if text.partition(" (n=")[0] == text_of(mean, error, olympic, bound, invalid):
            return not text.partition(" (n=")[2] or text.endswith(f" (n={n})")
    return False
