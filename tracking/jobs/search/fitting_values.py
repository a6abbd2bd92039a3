"""Checks a request, or a value of an axis, beside values of other axes that it may need."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice, product

from conf.schema import ConfigError, RunConfig
from tracking.analysis.search import Axis, Scalar
from tracking.jobs.search.axes import axis_of
from tracking.request.search_options import setting_overrides

MOST_TRIED = 64  # the most combinations of values that are tried
ParsedWord = Callable[[str], tuple[str, object, Sequence[object]]]  # a word's key, its value, and the listed choices


def checked_request(
    overrides: list[str], axes: Sequence[str], parsed: ParsedWord, make: Callable[[list[str]], RunConfig]
) -> RunConfig:
    """The config of a search's request, beside values of its axes if it needs them. Raises ConfigError.

    `overrides` are without the words of the `axes`, which `parsed` reads. `make` composes and checks a config.
    """
    try:
        return make(overrides)
    except ConfigError:
        return first_that_fits(overrides, [Axis(**axis_of(word, *parsed(word))) for word in axes], make, {})


def first_that_fits(
    overrides: list[str], axes: Sequence[Axis], make: Callable[[list[str]], RunConfig], setting: Mapping[str, Scalar]
) -> RunConfig:
    """The config of a setting; if it is refused, with the first values of the other axes that it fits.

    Raises the first ConfigError if no values fit.
    """
    words = [*overrides, *setting_overrides(setting)]
    try:
        return make(words)
    except ConfigError as error:
        for values in islice(product(*(_tried(axis) for axis in axes if axis.key not in setting)), MOST_TRIED):
            with suppress(ConfigError):
                return make([*words, *setting_overrides(dict(ChainMap(*values)))])
        raise error from None


def _tried(axis: Axis) -> list[dict[str, Scalar]]:
    """An axis's values to try. Of an interval these are the option's own value, which needs no word, and an end."""
    return [{axis.key: value} for value in axis.choices] or [{}, {axis.key: axis.to_check[0]}]
