"""What a search is asked for, as the part that proposes takes it: its groups, its budget, and what it starts with."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from conf import metric
from conf.schema import ConfigError, RunConfig
from tracking.analysis.search import Axis, Rules, Scalar, SearchTrial
from tracking.jobs.search import trace_file
from tracking.record import files
from tracking.request.search_options import budget_of, objectives_of

MOST_ON_CLUSTER = 8  # exploring runs in a scheduler's queue together: each is proposed by those that have ended
GROUPS = ("gpus", "cpu_processes", "nodes")  # The first that is an axis has a best setting for each of its values.


def rules_of(config: RunConfig, axes: Sequence[Axis], num_gpus: int) -> Rules:
    """What the user asked for, as the part that proposes takes it. `num_gpus` are visible on this machine."""
    keys, budget = [axis.key for axis in axes], budget_of(config.search)
    here = config.cluster.kind == "none"
    at_once = config.sweep.jobs_at_once if here else min(config.cluster.jobs_at_once, MOST_ON_CLUSTER)
    decides = config.sweep.until_decided
    best_before, earlier = earlier_search(config, axes)
    settings = product(*(axis.choices for axis in axes)) if decides else ()
    return Rules(
        tuple(axes), group=next((key for key in GROUPS if key in keys), GROUPS[0]),
        budget=budget.amount, run_cost=1.0 if budget.unit == "runs" else None, seed=config.seed,
        explore_seed=config.seed, at_once=max(1, at_once), num_gpus=num_gpus if here and config.on_gpu() else 0,
        gpus_each=config.num_gpus(), apart=config.cluster.kind == "slurm" and config.cluster.exclusive,
        max_finalists=config.search.max_finalists,
        num_objectives=len(objectives_of(config.search)),
        starts=tuple(filter(None, [*best_before, own_setting(config, axes)])), earlier=earlier,
        explore=not decides, finalists=tuple(dict(zip(keys, values, strict=True)) for values in settings),
        higher=config.directions().get(next(iter(config.targets()), ""), metric.HIGHER) == metric.HIGHER,
    )  # fmt: skip


def own_setting(config: RunConfig, axes: Sequence[Axis]) -> dict[str, Any]:
    """The setting that would be run without a search, as far as it lies on the axes, for each of GROUPS."""
    own = [axis for axis in axes if axis.key not in GROUPS]
    return {axis.key: value for axis in own if axis.holds(value := value_of(config, axis.key))}


def value_of(config: RunConfig, key: str) -> Any:
    """The value of a dotted key; a group's is its name, and None stands for a key that is not there."""
    own = {"batch_size": config.device_batch_size(), "global_batch_size": config.samples_per_step()}
    value: Any = config
    for part in key.lstrip("+").split("."):
        value = value.get(part) if isinstance(value, dict) else getattr(value, part, None)
    return own.get(key, getattr(value, "name", value))


def earlier_search(config: RunConfig, axes: Sequence[Axis]) -> tuple[list[dict[str, Scalar]], tuple[SearchTrial, ...]]:
    """The best settings of the search that `search.from` names, and its runs; none where it names none.

    Raises ConfigError.
    """
    name, objective = config.search.source, config.search.objective
    if name is None:
        return [], ()
    folder = Path(config.runs_dir) / name
    try:
        runs = trace_file.runs_of(folder, axes, objective) if len(objectives_of(config.search)) == 1 else []
        return trace_file.best_of(folder, axes), tuple(runs)
    except (OSError, ValueError) as error:
        root = Path(config.runs_dir)
        there = [path.name for path in files.folders(root, trace_file.TRACE)] if root.is_dir() else []
        known = f"there are: {', '.join(there)}" if there else "there is none"
        raise ConfigError(
            f"search.from={name}: {error}; give a search in runs_dir={config.runs_dir}: {known}"
        ) from None
