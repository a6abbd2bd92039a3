"""Suggestions for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near(name: str, known: Iterable[str]) -> list[str]:
    """Up to two known names that look like `name`, the nearest first."""
    return difflib.get_close_matches(name, list(known), n=2, cutoff=0.6)


def near_or_all(name: str, known: Iterable[str]) -> str:
    """`Did you mean NAME?`, or all known names if none is near."""
    known = list(known)
    if names := near(name, known):
        return f"Did you mean {' or '.join(names)}?"
    return f"Allowed: {', '.join(known) or '(none)'}"
