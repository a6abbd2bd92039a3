"""Numbers as text, in digits that are read at once: `1,576` instead of `1.58e+03`; and counts with their nouns."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

SINGULAR = {"are": "is", "do": "does", "have": "has", "were": "was"}


def significant(value: float, digits: int = 3) -> str:
    """A value with so many significant digits, and at least its whole part: `0.0123`, `12.3`, `1,576`."""
    return written_out(f"{value:,.{digits}g}", value)


def written_out(text: str, value: float) -> str:
    """The text of a value; if it has an exponent for a large value, the rounded value without one."""
    return f"{value:,.0f}" if "e+" in text and abs(value) < 1e15 else text


def filled(template: str, values: Mapping[str, Any]) -> str:
    """The template as `str.format` fills it, but with numbers such as `{factor:.3g}` without an exponent."""
    return _Written().vformat(template, (), values)


class _Written(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        text: str = super().format_field(value, format_spec)
        return written_out(text, value) if format_spec.endswith("g") else text


def epoch_text(number: float) -> str:
    """A number of epochs, which a run's steps may divide: `12`, `0.308`, `1500`."""
    return f"{round(number, 3):.10g}"


def formatted(value: float, digits: str) -> str:
    """A value by a format such as `.3g`; by `.2f` with three significant digits where it would leave fewer than two."""
    digits = ".3g" if digits == ".2f" and 0 < abs(value) < 0.1 else digits
    return significant(value, int(digits[1:-1])) if digits.endswith("g") else f"{value:{digits}}"


def counted(number: int, noun: str) -> str:
    """The count with its noun: 1 run, 2 runs, 0 runs."""
    return f"{number} {noun}{'s' * (number != 1)}"


def verb(plural: str, number: int) -> str:
    """The verb's form for this count: 1 counts, 2 count."""
    return SINGULAR.get(plural, f"{plural}s") if number == 1 else plural
