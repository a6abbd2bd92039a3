"""Stands in for matplotlib's figures where a test looks at no picture: building them takes most of a report's time."""

from __future__ import annotations

from typing import Any

import numpy as np

ANSWERS = {"get_xlim": (0.0, 1.0), "get_ylim": (0.0, 1.0), "get_legend_handles_labels": ([], [])}


class Undrawn:
    """A figure, its axes and all that they hold: it takes every call and draws nothing."""

    def __init__(self, *_: object, answer: Any = None, **__: object) -> None:
        self._answer = answer

    def __call__(self, *_: object, **__: object) -> Any:
        return self if self._answer is None else self._answer

    def __getattr__(self, name: str) -> Undrawn:
        if name.startswith("__"):
            raise AttributeError(name)
        return Undrawn(answer=ANSWERS.get(name))

    def __getitem__(self, _: object) -> Undrawn:
        return self

    def subplots(self, rows: int, columns: int, **_: object) -> Any:
        return np.full((rows, columns), self)
