"""Counts in words, with singular and plural."""

from __future__ import annotations

SINGULAR = {"are": "is", "do": "does", "have": "has", "were": "was"}


def counted(number: int, noun: str) -> str:
    """The count with its noun: 1 run, 2 runs, 0 runs."""
    return f"{number} {noun}{'s' * (number != 1)}"


def verb(plural: str, number: int) -> str:
    """The verb's form for this count: 1 counts, 2 count."""
    return SINGULAR.get(plural, f"{plural}s") if number == 1 else plural
