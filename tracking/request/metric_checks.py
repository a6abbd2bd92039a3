"""Refuses targets out of a metric's range, and directions that are missing or contradict each other."""

from __future__ import annotations

import math

from conf.metric import LOWER, parse
from conf.schema import ConfigError, RunConfig
from conf.target import directions_of, limit, text
from tracking.request.program_command import check_program_target


def check_directions(config: RunConfig) -> None:
    """Raise ConfigError for a malformed declaration, and for a target that contradicts a declaration."""
    targets = config.targets()
    try:
        declared = config.declared()
    except ValueError as error:
        raise ConfigError(f"model.metrics.{error}") from None
    for name, direction in directions_of(targets).items():
        if declared.get(name, direction) != direction:
            suggestion = "a number" if direction == LOWER else "<=NUMBER"
            raise ConfigError(
                f"target={text(targets[name])}: implies that {direction} is better of {name}, but {declared[name]} is"
                f" declared. Next: give {suggestion}, or declare {direction}"
            )


def check_target(config: RunConfig) -> None:
    """Raise ConfigError for a target of an unknown metric, out of its range, or of a dataset without accuracy."""
    declared = config.model.targets[config.dataset.name]
    if config.target is not None and len(declared) > 1:
        keys = ", ".join(f"model.targets.{config.dataset.name}.{metric}" for metric in declared)
        raise ConfigError(f"target={config.target}: this workload has several targets. Next: set {keys}")
    if config.target is not None and not declared and not config.is_program():
        raise ConfigError(
            f"target={config.target}: dataset={config.dataset.name} has no accuracy to reach. Next: leave it out, or"
            " give another dataset"
        )
    if config.is_program():
        check_program_target(config)
        return
    for metric, value in config.targets().items():
        if metric not in config.model.metrics:
            raise ConfigError(
                f"model.targets.{config.dataset.name}.{metric}={text(value)}: no such metric. Allowed:"
                f" {', '.join(config.model.metrics)} (model.metrics)"
            )
        lowest, highest = parse(config.model.metrics[metric]).bounds or (-math.inf, math.inf)
        if not lowest <= limit(value) <= highest:
            raise ConfigError(f"target={value}: out of range. Allowed for {metric}: {lowest:g} to {highest:g}")
    if not config.targets() and not config.stop_at_target:
        raise ConfigError("stop_at_target=false: has no effect, since this dataset has no target. Next: leave it out")


def check_best(config: RunConfig) -> None:
    """Raise ConfigError for save_model=best if neither a target nor a declaration says which evaluation is better."""
    first_metric = next(iter(config.model.metrics), "")
    if config.save_model == "best" and not config.targets() and first_metric not in config.directions():
        declaration = f"metrics: {{{first_metric or 'METRIC'}: lower}} or {{{first_metric or 'METRIC'}: higher}}"
        raise ConfigError(
            f"save_model=best: dataset={config.dataset.name} has no target, and whether a lower or a higher"
            f" {first_metric or 'metric'} is better is not declared. Next: declare it in the model's YAML"
            f" ({declaration}), or give save_model=final"
        )
