"""A user's request for a search as `Rules`: its groups, its budget, and its starting settings."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from conf import metric
from conf.schema import ConfigError, RunConfig
from tracking.analysis.search import Axis, Rules, Scalar, SearchTrial, highest_seed
from tracking.jobs.plan import sweep
from tracking.jobs.search import trace_file
from tracking.record import documents, files
from tracking.request.checks import HIGHEST_SEED
from tracking.request.search_options import budget_of, objectives_of, search_name

MOST_ON_CLUSTER = 8  # most concurrent exploring runs on a cluster: each proposal needs the results of ended runs
GROUPS = ("gpus", "cpu_processes", "nodes")  # The first one that is an axis gets a best setting for each of its values.


class EarlierSearch(NamedTuple):
    """What `search.from` names: its best settings, its runs if they can be compared, and its highest seed."""

    best: list[dict[str, Scalar]]
    runs: tuple[SearchTrial, ...]
    highest_seed: int


def rules_of(config: RunConfig, axes: Sequence[Axis], num_gpus: int) -> Rules:
    """The rules of the search that the user asked for. `num_gpus` are visible on this machine."""
    keys, budget = [axis.key for axis in axes], budget_of(config.search)
    here = config.cluster.kind == "none"
    at_once = config.sweep.jobs_at_once if here else min(config.cluster.jobs_at_once, MOST_ON_CLUSTER)
    decides = config.sweep.until_decided
    earlier = earlier_search(config, axes)
    settings = product(*(axis.choices for axis in axes)) if decides else ()
    rules = Rules(
        tuple(axes), group=next((key for key in GROUPS if key in keys), GROUPS[0]),
        budget=budget.amount, run_cost=1.0 if budget.unit == "runs" else None, seed=config.seed,
        explore_seed=config.seed, at_once=max(1, at_once), num_gpus=num_gpus if here and config.on_gpu() else 0,
        gpus_each=config.num_gpus(), apart=config.cluster.kind == "slurm" and config.cluster.exclusive,
        max_finalists=config.search.max_finalists,
        num_objectives=len(objectives_of(config.search)),
        starts=tuple(filter(None, [*earlier.best, own_setting(config, axes)])),
        earlier=earlier.runs, earlier_seed=earlier.highest_seed,
        explore=not decides, finalists=tuple(dict(zip(keys, values, strict=True)) for values in settings),
        higher=config.directions().get(next(iter(config.targets()), ""), metric.HIGHER) == metric.HIGHER,
    )  # fmt: skip
    check_seeds(config, rules)
    return rules


def check_seeds(config: RunConfig, rules: Rules) -> None:
    """Raise ConfigError if the seeds that the search may add to its first one would be too large."""
    more = highest_seed(rules) - max(config.seed, rules.earlier_seed)
    highest = HIGHEST_SEED - more
    if config.seed > highest:
        raise ConfigError(
            f"seed={config.seed}: {search_name(config)} repeats runs with up to {more} higher seeds. Allowed: 0 to"
            f" {highest}. Next: give a smaller one, as seed=1"
        )
    if rules.earlier_seed > highest:
        raise ConfigError(
            f"search.from={config.search.source}: its seeds end at {rules.earlier_seed}, and {search_name(config)}"
            f" takes up to {more} higher ones. Allowed: 0 to {highest}. Next: leave search.from out"
        )


def own_setting(config: RunConfig, axes: Sequence[Axis]) -> dict[str, Any]:
    """The setting that would run without a search: its values that lie on the axes, without keys of GROUPS."""
    plain_axes = [axis for axis in axes if axis.key not in GROUPS]
    return {axis.key: value for axis in plain_axes if axis.holds(value := value_of(config, axis.key))}


def value_of(config: RunConfig, key: str) -> Any:
    """The value of a dotted key; for a config group, its name. None if the key is missing."""
    batch_sizes = {"batch_size": config.device_batch_size(), "global_batch_size": config.samples_per_step()}
    value: Any = config
    for part in key.lstrip("+").split("."):
        value = value.get(part) if isinstance(value, dict) else getattr(value, part, None)
    return batch_sizes.get(key, getattr(value, "name", value))


def _trained(folder: Path) -> tuple[str, str] | None:
    """The names of the model and the dataset that a search trained; None if they are not known."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        began = documents.read_json(folder / sweep.DEFINITION)["jobs"][0]["config"]
        return began["model"]["name"], began["dataset"]["name"]
    return None


def earlier_search(config: RunConfig, axes: Sequence[Axis]) -> EarlierSearch:
    """The search that `search.from` names; empty without it. Raises ConfigError."""
    name, objective = config.search.source, config.search.objective
    if name is None:
        return EarlierSearch([], (), 0)
    folder = Path(config.runs_dir) / name
    asked = config.model.name, config.dataset.name
    if (trained := _trained(folder)) not in (None, asked):
        raise ConfigError(
            f"search.from={name}: searched model={trained[0]} on dataset={trained[1]}, not {asked[0]} on"
            f" {asked[1]}. Next: give a search of this model and dataset, or leave it out"
        )
    try:
        runs = trace_file.runs_of(folder, axes, objective) if len(objectives_of(config.search)) == 1 else []
        return EarlierSearch(trace_file.best_of(folder, axes), tuple(runs), trace_file.highest_seed(folder))
    except (OSError, ValueError) as error:
        root = Path(config.runs_dir)
        names = [path.name for path in files.folders(root, trace_file.TRACE)] if root.is_dir() else []
        known = f"there are: {', '.join(names)}" if names else "it has no search yet"
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        why = "no such search" if missing else getattr(error, "strerror", None) or error
        raise ConfigError(
            f"search.from={name}: {why}. Next: give a search in runs_dir={config.runs_dir}: {known}"
        ) from None
