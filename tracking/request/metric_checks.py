"""Refuses targets that no metric can reach, and directions that nothing says or that contradict each other."""

from __future__ import annotations

import math

from conf.metric import LOWER, parse
from conf.schema import ConfigError, RunConfig
from conf.target import directions_of, limit, text
from tracking.request.program_command import check_program_target


def check_directions(config: RunConfig) -> None:
    """Refuse a declaration that has another form, and a target that contradicts one."""
    targets = config.targets()
    try:
        declared = config.declared()
    except ValueError as error:
        raise ConfigError(f"model.metrics.{error}") from None
    for name, way in directions_of(targets).items():
        if declared.get(name, way) != way:
            form = "a number" if way == LOWER else "<=NUMBER"
            raise ConfigError(
                f"target={text(targets[name])}: says that {way} is better of {name}, and {declared[name]} is declared;"
                f" give {form}, or declare {way}"
            )


def check_target(config: RunConfig) -> None:
    own = config.model.targets[config.dataset.name]
    if config.target is not None and len(own) > 1:
        keys = ", ".join(f"model.targets.{config.dataset.name}.{metric}" for metric in own)
        raise ConfigError(f"target={config.target}: this workload has several targets; set {keys}")
    if config.target is not None and not own and not config.is_program():
        raise ConfigError(f"target={config.target}: dataset={config.dataset.name} has no accuracy to reach")
    if config.is_program():
        check_program_target(config)
        return
    for metric, value in config.targets().items():
        if metric not in config.model.metrics:
            raise ConfigError(f"model.targets: {metric} is not in model.metrics ({', '.join(config.model.metrics)})")
        lowest, highest = parse(config.model.metrics[metric]).bounds or (-math.inf, math.inf)
        if not lowest <= limit(value) <= highest:
            raise ConfigError(f"target={value}: {metric} lies between {lowest:g} and {highest:g}")
    if not config.targets() and not config.stop_at_target:
        raise ConfigError("stop_at_target=false: has no effect, since this dataset has no target; leave it out")


def check_best(config: RunConfig) -> None:
    """Refuse to keep the best weights where nothing says which evaluation is better."""
    first = next(iter(config.model.metrics), "")
    if config.save_model == "best" and not config.targets() and first not in config.directions():
        how = f"metrics: {{{first or 'METRIC'}: lower}} or {{{first or 'METRIC'}: higher}}"
        raise ConfigError(
            f"save_model=best: dataset={config.dataset.name} has no target, and nothing says whether lower or higher is"
            f" better of {first or 'any metric'}; declare it in the model's YAML ({how}), or give save_model=final"
        )
