"""The axes of a search: reads them from arguments, refuses options that cannot be axes, and gives the defaults.

A request, or a value of an axis, may be valid only with values of other axes. It is then checked with these.
"""

from __future__ import annotations

import math
import re
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice, product
from typing import Any

from conf.schema import NOT_MEASURED, ConfigError, RunConfig
from tracking.analysis.search import Axis, Scalar
from tracking.request.search_options import search_name, setting_overrides

SEARCH_EXAMPLE = "-m +search=quickest batch_size=16,32,64 'model.optimizer.lr=interval(0.01,0.1)'"
EVAL_OPTIONS = ("eval_every_steps", "eval_every_samples", "eval_at_epochs", "eval_after_steps")
# Options that a search decides itself, that would change the question it answers, or that do not change the training.
NON_AXES = (
    "seed", "recipe", "closed", "target", "max_epochs", "stop_at_target", "limit_train_batches", "dataset", "instance",
    "price_per_hour", "price_per_gpu_hour", "warm_up", "model.targets", "model.metrics", "hydra",
    "checkpoint_every_steps", "checkpoint_every_epochs", "save_model", "log_every_n_steps", "model.name",
    "model.workload", "model.group_size", "model.fp8", "model.exportable", "stack.name", "stack.expect",
    "precision.name", "precision.needs_gpu", "precision.min_compute_capability", "program.samples", "program.epoch",
    "program.step", "program.start", "program.unit", "program.samples_per_step", "program.tokens_per_step",
    "program.metrics", *EVAL_OPTIONS, *(f"model.{option}" for option in EVAL_OPTIONS), *NOT_MEASURED,
)  # fmt: skip
READING_AXES = ("dataset.decode", "dataset.num_threads")  # allowed: they change only how the same samples are read
INTEGER_INTERVAL = re.compile(r"interval\(\s*[+-]?\d[\d_]*\s*,\s*[+-]?\d[\d_]*\s*\)")
BATCH_FACTORS = (0.25, 0.5, 1.0, 2.0)  # default axis: factors of the model's batch size
LR_FACTOR = 4.0  # default axis: the model's learning rate, divided and multiplied by this
MOST_TRIED = 64  # the most combinations of values that are tried
ParsedWord = Callable[[str], tuple[str, object, Sequence[object]]]  # a word's key, its value, and the listed choices


def axis_of(word: str, key: str, sweep: Any, choices: Sequence[Any]) -> dict[str, Any]:
    """The fields of an axis from an argument.

    `sweep` is its value as parsed by Hydra, `choices` are its listed values; empty for an interval. Raises ConfigError.
    """
    name = key.lstrip("+")
    if sweep == "" and name.startswith("search."):
        raise ConfigError(f"{key.replace('.source', '.from')}=: has no value. Next: give one, or leave it out")
    refused = name == "model" or f"{name}.".startswith(tuple(f"{option}." for option in NON_AXES))
    if refused and name not in READING_AXES:
        raise ConfigError(
            f"{word}: {key} cannot be an axis of a search, nor with sweep.until_decided=true. Allowed: options that"
            " change the speed of training, such as batch_size or precision"
        )
    if hasattr(sweep, "end") and not choices:
        return _interval(word, key, sweep)
    values = list(dict.fromkeys(map(_plain, choices)))
    if not values or any(not isinstance(value, str | int | float | bool) or value == "" for value in values):
        raise ConfigError(f"{word}: not an axis of a search. Allowed: {key}=8,16,32 or '{key}=interval(8,32)'")
    if key == "gpus" and (other := next((value for value in values if type(value) is not int), None)) is not None:
        raise ConfigError(
            f"{word}: {other} is not a whole number. Allowed as an axis: whole numbers. Next: give the numbers of GPUs"
            " to compare, as in gpus=1,2"
        )
    return {"key": key, "choices": tuple(values)}


def _plain(value: Any) -> Any:
    """The text of a quoted word; lists and dictionaries as tuples, which are refused later."""
    text = getattr(value, "text", value)
    return tuple(text) if isinstance(text, list | dict) else text


def _interval(word: str, key: str, sweep: Any) -> dict[str, Any]:
    low, high = sweep.start, sweep.end
    log, integer = "log" in sweep.tags, bool(INTEGER_INTERVAL.search(word))  # Hydra makes floats of both ends.
    if not all(isinstance(end, int | float) and math.isfinite(end) for end in (low, high)) or not low < high:
        raise ConfigError(
            f"{word}: the interval begins at {low} and ends at {high}. Allowed: two different finite numbers. Next:"
            " give the lower end first"
        )
    if unknown := sweep.tags - {"log"}:
        raise ConfigError(f"{word}: no such tag as {min(unknown)}. Allowed: tag(log,interval(...))")
    if log and low <= 0:
        raise ConfigError(f"{word}: the interval begins at {low}. Allowed on a logarithmic scale: above 0")
    return {"key": key, "low": float(low), "high": float(high), "log": log, "integer": integer}


def default_axes(config: RunConfig, overrides: Sequence[str] = ()) -> list[str]:
    """The default axes as arguments: batch size and learning rate, both around the model's own.

    Options that the `overrides` set are not axes. The model's lr_scaling applies to each setting's global batch. Raises
    ConfigError for a program.
    """
    if config.is_program():
        raise ConfigError(f"{search_name(config)}: a program has no default axes. Next: name them: {SEARCH_EXAMPLE}")
    group, size, key = config.model.group_size, config.device_batch_size(), "batch_size"
    if config.model.global_batch:  # It stays the same for any number of devices.
        group, size, key = group * config.world_size(), config.samples_per_step(), "global_batch_size"
    sizes = dict.fromkeys(max(1, round(size * factor / group)) * group for factor in BATCH_FACTORS)
    lr = config.model.optimizer.lr
    rates = f"model.optimizer.lr=tag(log,interval({lr / LR_FACTOR:.3g},{lr * LR_FACTOR:.3g}))"
    fixed = {word.partition("=")[0] for word in overrides}
    axes = [] if fixed & {"batch_size", "global_batch_size"} else [f"{key}={','.join(map(str, sizes))}"]
    return [*axes, *([] if "model.optimizer.lr" in fixed else [rates])]


def checked_request(
    overrides: list[str], axes: Sequence[str], parsed: ParsedWord, make: Callable[[list[str]], RunConfig]
) -> RunConfig:
    """The config of a search's request, with values of its axes if it needs them. Raises ConfigError.

    `overrides` are without the words of the `axes`, which `parsed` reads. `make` composes and checks a config.
    """
    try:
        return make(overrides)
    except ConfigError:
        return first_that_fits(overrides, [Axis(**axis_of(word, *parsed(word))) for word in axes], make, {})


def first_that_fits(
    overrides: list[str], axes: Sequence[Axis], make: Callable[[list[str]], RunConfig], setting: Mapping[str, Scalar]
) -> RunConfig:
    """The config of a setting. If it is refused, the first accepted config with values of the other axes.

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
    """An axis's values to try. For an interval: the option's own value, which needs no argument, and one end."""
    return [{axis.key: value} for value in axis.choices] or [{}, {axis.key: axis.to_check[0]}]
