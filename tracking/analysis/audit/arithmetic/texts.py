"""Print a mean with its error as a report's tables and CSV do, and check printed means within their tolerance."""

from __future__ import annotations

import math
import re

from tracking.analysis.audit.arithmetic.censored_means import Observations, moments_of
from tracking.base import quantities

NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
# Step times are journaled to a tenth of a microsecond: rates computed from them are that coarse.
EXACT, COARSE = 1e-9, 1e-4


def close(claimed: float | None, expected: float | None, near: float, size: float) -> bool:
    if claimed is None or expected is None:
        return claimed is expected
    return math.isclose(claimed, expected, rel_tol=near, abs_tol=near * abs(size))


def text_of(mean: float, error: float | None, olympic: float | None, bound: str = "", invalid: bool = False) -> str:
    """The mean to two digits of its error and at most six of its own; without an error, to four of its own."""
    decimals = max(0, min(1 - _magnitude(error), 5 - _magnitude(mean)) if error else 3 - _magnitude(mean))
    tens = 10.0 ** max(0, _magnitude(mean) - 5)  # what the sixth digit counts; 1 below a million
    if tens > 1:
        mean = tens * round(mean / tens)
        error, olympic = (None if each is None else tens * round(each / tens) for each in (error, olympic))
    text = f"{bound} {mean:,.{decimals}f}".strip()
    text += "" if error is None else f" ± {error:,.{decimals}f}"
    text += "" if olympic is None else f" (olympic {olympic:,.{decimals}f})"
    return text + (" (olympic invalid: several missed)" if invalid else "")


def _magnitude(value: float) -> int:
    return math.floor(math.log10(abs(value))) if value and math.isfinite(value) else 0


def is_invalid(n: int, num_short: int) -> bool:
    """Whether there are enough runs for an olympic mean, but too many missed their target."""
    return n >= 5 and num_short > 1


def says(sample: Observations, scale: float, text: str, near: float) -> bool:
    """Whether a text is the mean of a sample, whose numbers may be off by a relative `near` before they are rounded."""
    moments = moments_of(sample, scale)
    if moments is None:
        return not text
    n, mean, error, olympic = moments
    bound, invalid = sample.sign, is_invalid(n, sample.num_short)
    claimed, _, of = text.partition(" (n=")
    expected = [text_of(shift * mean, error, olympic, bound, invalid) for shift in (1.0, 1 - near, 1 + near)]
    if (of and of != f"{n})") or _form(claimed) not in map(_form, expected):
        return False
    last = last_digit(claimed, mean)
    off = near * abs(mean) + 0.500001 * last
    numbers = [float(number.replace(",", "")) for number in NUMBER.findall(claimed)]
    known = [abs(value) for value in (mean, error, olympic) if value is not None]
    rounded = last <= 1 or not any(number % last for number in numbers)
    return rounded and all(abs(number - value) <= off for number, value in zip(numbers, known, strict=True))


def _form(text: str) -> str:
    """A printed mean with each number replaced by a # per decimal."""
    return NUMBER.sub(lambda number: "#" * len(number[0].partition(".")[2]) + "0", text)


def last_digit(text: str, mean: float) -> float:
    """The value of the last significant digit of a printed mean."""
    decimals = len(NUMBER.findall(text)[0].partition(".")[2])
    return 10.0 ** (max(0, _magnitude(mean) - 5) or -decimals)


def meets(value: float | None, target: str) -> bool:
    if value is None or not math.isfinite(value):
        return False
    return value <= float(target[2:]) if target.startswith("<=") else value >= float(target)


def tolerance(key: str) -> float:
    return COARSE if key.startswith(quantities.THROUGHPUT) else EXACT


def step(key: str) -> float:
    """The spacing of a figure's values: 1 for counts (epochs, evaluations), 0 for measured ones."""
    return 1.0 if key.startswith((quantities.EPOCHS, quantities.EVALUATIONS)) else 0.0
