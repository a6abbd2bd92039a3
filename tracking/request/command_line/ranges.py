"""Refuses sweeps with no job or with far too many."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from conf.schema import ConfigError
from tracking.request.refusal import SWEEP_FUNCTION

MULTIRUN, CONFIG_DIR = {"-m", "--multirun"}, {"-cd", "--config-dir"}
MOST_VALUES = 10_000  # of all ranges of a sweep together, or of each range of a search


def check_number(num_jobs: int, words: Sequence[str]) -> None:
    """Raise ConfigError for a sweep without jobs, unless the words of the command line ask for none, as --help does."""
    flags = {word.partition("=")[0] for word in words if word.startswith("-")}
    if num_jobs or not flags & MULTIRUN or flags - MULTIRUN - CONFIG_DIR:
        return
    functions = [word for word in words if SWEEP_FUNCTION.match(word.partition("=")[2])]
    raise ConfigError(f"{' '.join(functions)}: no values, so the sweep has no jobs. Next: list them: seed=1,2,3")


def check_ranges(values: Mapping[str, Any], is_search: bool) -> None:
    """Raise ConfigError if Hydra's ranges among the values, by argument, have no end or more than MOST_VALUES values.

    Hydra lists all combinations of a sweep before it composes one; those of `range(1,1000000000)` fill the memory. A
    search draws from each axis alone, so its axes may have more combinations.
    """
    ranges = {word: value for word, value in values.items() if hasattr(value, "step")}
    for word, each in ranges.items():
        if not each.step or not all(map(math.isfinite, (each.start, each.stop, each.step))):
            raise ConfigError(
                f"{word}: its step is {each.step}, from {each.start} to {each.stop}. Allowed: finite numbers, and a"
                " step other than 0. Next: give other ones, as range(1,5) or range(0.1,0.5,0.1)"
            )
    lengths = {word: abs((each.stop - each.start) / each.step) for word, each in ranges.items()}
    together = {" ".join(lengths): math.prod(lengths.values())}
    for words, length in (lengths if is_search else together).items():
        if length > MOST_VALUES:
            raise ConfigError(
                f"{words}: gives {length:,.0f} values. Allowed: up to {MOST_VALUES:,}. Next: give a larger step as the"
                " third number, or in a search interval(LOW,HIGH)"
            )
