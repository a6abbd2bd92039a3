"""Numbers of things in words."""

from __future__ import annotations

OF_ONE = {"are": "is", "do": "does", "have": "has", "were": "was"}


def counted(number: int, what: str) -> str:
    """1 run, 2 runs, 0 runs."""
    return f"{number} {what}{'s' * (number != 1)}"


def verb(plural: str, number: int) -> str:
    """What so many do: 1 counts, 2 count."""
    return OF_ONE.get(plural, f"{plural}s") if number == 1 else plural
