"""Whether a report's text says these numbers, in the digits that it shows."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from tracking.audit.arithmetic.samples import Observations, moments_of

NUMBER = r"-?[\d,]+(?:\.\d+)?"


def close(claimed: float | None, expected: float | None, near: float, size: float) -> bool:
    if claimed is None or expected is None:
        return claimed is expected
    return math.isclose(claimed, expected, rel_tol=near, abs_tol=near * abs(size))


def printed(text: str, numbers: Sequence[float | None], near: float) -> bool:
    """Whether the words say these numbers, rounded to the digits that they show."""
    shown = re.findall(NUMBER, text)
    there = [number for number in numbers if number is not None]
    if len(shown) != len(there):
        return False
    for words, number in zip(shown, there, strict=True):
        half_a_digit = 0.5 * 10.0 ** -len(words.partition(".")[2])
        if abs(float(words.replace(",", "")) - number) > half_a_digit * (1 + 1e-6) + near * abs(number):
            return False
    return True


def significant(text: str, number: float | None, digits: int, near: float) -> bool:
    """Whether the text is the number, rounded to so many significant digits."""
    if number is None or not text:
        return number is None and not text
    unit = 10.0 ** (math.floor(math.log10(abs(number))) - digits + 1) if number else 0.0
    return abs(float(text) - number) <= 0.5 * unit * (1 + 1e-6) + near * max(abs(number), 1.0)


def marked(text: str, sample: Observations) -> bool:
    """Whether a printed mean says that it is a bound where it is one, and that there is no olympic mean."""
    invalid = len(sample) >= 5 and sample.num_short > 1
    return text.startswith("≥ ") == bool(sample.num_short) and ("(olympic invalid: several missed)" in text) == invalid


def says_mean(sample: Observations, scale: float, text: str, near: float) -> bool:
    expected = moments_of(sample, scale)
    if expected is None:
        return not text
    return marked(text, sample) and says(text, len(sample), expected[1:], near)


def says(text: str, n: int, numbers: Sequence[float | None], near: float) -> bool:
    """Whether a cell says these numbers; where it says of how many runs, whether those are n."""
    words, _, of = text.partition(" (n=")
    return (not of or of == f"{n})") and printed(words, numbers, near)
