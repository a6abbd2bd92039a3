"""The search that a command line asks for: a new one, or one that continues."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import typing
from collections.abc import Callable, Sequence
from pathlib import Path

from conf.newer_options import remove_newer
from conf.schema import ConfigError, RunConfig
from tracking.analysis.search import DECIDE, Axis
from tracking.jobs.plan import Job
from tracking.jobs.search import trace_file
from tracking.jobs.search.axes import SEARCH_EXAMPLE, ParsedWord, axis_of, checked_request, default_axes
from tracking.jobs.search.search_jobs import SearchJobs
from tracking.jobs.search.search_rules import GROUPS, value_of
from tracking.request import refusal
from tracking.request.program_command import check_label
from tracking.request.search_options import is_search, search_name

# Options that belong to one launch, or that a search decides by itself.
OF_A_LAUNCH = ("search", "sweep", "trust", "detach", "timeout_sec", "resume", "tracking", "cluster", "alert")
GIVEN_ANEW = ("tracking.", "cluster", "search.budget", "timeout_sec", "alert.", "sweep.jobs_at_once")  # when resumed
SIZES = ("batch_size", "global_batch_size", "model.batch_size", *GROUPS)  # axes that change the samples of a step
MOST_SETTINGS = 4  # the most that sweep.until_decided takes


def search_of(
    requested: Job, resumed: Sequence[Job], folder: Path | None, axes: Sequence[str], parsed: ParsedWord,
    make: Callable[[list[str]], RunConfig], num_gpus: int,
) -> SearchJobs | None:  # fmt: skip
    """The search that the `requested` job asks for, or that the `resumed` jobs of `folder` belong to; None without one.

    `axes` are the words of the command line that name the axes, and `parsed` reads them. `num_gpus` are visible here.
    Raises ConfigError.
    """
    if resumed:
        first = resumed[0]
        if not first.config.search.phase:
            _refuse_plain_sweep(requested.config)
            return None
        words = _unchanged_axes(axes, first)
        config, requested = requested.config, _as_it_began(requested, first, check_unchanged(first, make).timeout_sec)
        at_once = checked_request(requested.overrides, words, parsed, make).sweep.jobs_at_once  # as in a new search
        config.sweep.jobs_at_once = requested.config.sweep.jobs_at_once = at_once  # The queue reads `config`.
    elif is_search(requested.config):
        words = _completed_axes(axes, requested)
    else:
        return None
    requested.config.search.axes = words
    searched = [_axis(requested.config, word, parsed) for word in words]
    check_label(requested.config, [axis.key for axis in searched])
    if requested.config.sweep.until_decided:
        check_few(words, searched)
    elif importlib.util.find_spec("optuna") is None:
        name = search_name(requested.config)
        raise ConfigError(f"{name}: needs Optuna. Next: pip install 'optuna>=5,<6' (the extra search)")
    if not resumed:
        check_several(search_name(requested.config), words, searched, requested.overrides)
        requested = _evaluated_alike(requested, searched)
    refused = trace_file.refused(folder, searched) if folder else ()
    search = SearchJobs(requested, searched, make, resumed, refused, num_gpus)
    if not resumed:
        search.block()  # Raises before any run for a setting that cannot be run.
    return search


def _evaluated_alike(requested: Job, axes: Sequence[Axis]) -> Job:
    """The request, with evaluations after the same numbers of samples in each setting. Raises ConfigError.

    A target is reached at an evaluation, so intervals in steps would favour settings with smaller steps.
    """
    if not any(axis.key.lstrip("+") in SIZES for axis in axes):
        return requested
    config, in_steps = requested.config, ("eval_every_steps=", "eval_after_steps=")
    if typed := next((word for word in requested.overrides if word.startswith(in_steps)), ""):
        raise ConfigError(
            f"{typed}: the samples in a step differ between settings of {' '.join(config.search.axes)}. Next:"
            f" give eval_every_samples={config.samples_per_step()} times the number of steps"
        )
    steps = config.evaluated().every_steps
    if steps is None:
        return requested
    return Job(config, [*requested.overrides, f"eval_every_samples={steps * config.samples_per_step()}"])


def _refuse_plain_sweep(config: RunConfig) -> None:
    """Raise ConfigError if a search is requested and the resumed sweep is a plain one."""
    if is_search(config):
        raise ConfigError(
            f"sweep.resume={config.sweep.resume}: the sweep is not a search. Next: leave {search_name(config)} out"
        )


def _unchanged_axes(axes: Sequence[str], first: Job) -> list[str]:
    """The axes of a resumed search. Raises ConfigError if the command line names others."""
    began = first.config.search.axes
    if axes and list(axes) != began:
        raise ConfigError(
            f"{' '.join(axes)}: a resumed search keeps its axes: {' '.join(began)}. Next: leave"
            " them out, or begin a new search"
        )
    return began


def _completed_axes(axes: Sequence[str], requested: Job) -> list[str]:
    """The requested axes. The default axes are added if no axes, or only those of GROUPS, are requested."""
    config, only_groups = requested.config, all(word.partition("=")[0] in GROUPS for word in axes)
    if not only_groups or config.sweep.until_decided or (axes and config.is_program()):
        return list(axes)
    return [*axes, *default_axes(config, requested.overrides)]


def _axis(config: RunConfig, word: str, parsed: ParsedWord) -> Axis:
    """The axis that a word names. An interval of integers becomes one of floats if the option's own value is a float.

    Raises ConfigError, also for an interval of an option whose value is not a number.
    """
    axis = Axis(**axis_of(word, *parsed(word)))
    own, kind = value_of(config, axis.key), refusal.options().get(axis.key)
    kinds = (kind, *typing.get_args(kind))
    if not axis.choices and (isinstance(own, bool | str) or bool in kinds):
        raise ConfigError(f"{word}: {axis.key} is not a number. Next: list the values to compare: {axis.key}=A,B")
    if not axis.choices and not axis.integer and int in kinds and float not in kinds:
        raise ConfigError(
            f"{word}: {axis.key} is a whole number. Allowed: an interval between whole numbers. Next: write them"
            f" without a point: {axis.key}=interval(8,32)"
        )
    return dataclasses.replace(axis, integer=False) if isinstance(own, float) else axis


def check_unchanged(first: Job, make: Callable[[list[str]], RunConfig]) -> RunConfig:
    """The configuration that a search's first job would get now. Raises ConfigError if the job has another one.

    The job's own is signed. New jobs begin with the first job's words, so these must still mean the same.
    """
    composed = make(first.overrides)
    again, began = dataclasses.asdict(composed), dataclasses.asdict(first.config)
    for content in (again, began):
        remove_newer(content)
    keys = [key for key in {**again, **began} if key not in OF_A_LAUNCH]
    differing = [key for key in keys if again.get(key) != began.get(key)]
    if differing:
        raise ConfigError(
            f"sweep.resume: {' '.join(first.overrides)} gives another {differing[0]} than the search began with: its"
            " words, a YAML or the machine have changed. Next: put that back, or begin a new search"
        )
    return composed


def check_several(name: str, words: Sequence[str], axes: Sequence[Axis], overrides: Sequence[str] = ()) -> None:
    """Raise ConfigError if an axis is named twice, or if the axes do not give two settings to compare.

    `name` is the argument that requests the search, `overrides` are the words that are not axes.
    """
    keys = [axis.key for axis in axes]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise ConfigError(f"{twice}: is an axis twice in {' '.join(words)}. Next: give it once")
    bare_keys = {key.lstrip("+") for key in keys}
    if fixed := next((word for word in overrides if word.lstrip("+").partition("=")[0] in bare_keys), ""):
        raise ConfigError(f"{fixed}: has no effect beside the axis in {' '.join(words)}. Next: give one of them")
    if not axes:
        raise ConfigError(
            f"{name}: batch size and learning rate are given, so there is nothing to search. Next: leave one out, or"
            f" name an axis: {SEARCH_EXAMPLE}"
        )
    if all(len(axis.choices) == 1 for axis in axes):
        raise ConfigError(
            f"{' '.join(words)}: gives one setting, but {name} compares several. Next: give other values too, as"
            f" {keys[0]}=8,16,32"
        )


def check_few(words: Sequence[str], axes: Sequence[Axis]) -> None:
    """Raise ConfigError unless the axes give 2 to MOST_SETTINGS settings, which need no exploring."""
    if (
        not all(axis.choices for axis in axes)
        or not 2 <= math.prod(len(axis.choices) for axis in axes) <= MOST_SETTINGS
    ):
        raise ConfigError(
            f"{' '.join(['sweep.until_decided=true', *words])}: decides among 2 to {MOST_SETTINGS} settings. Next: give"
            " an axis with their values, as precision=fp32,bf16, or search more settings with +search=quickest"
        )


def _as_it_began(requested: Job, first: Job, timeout_sec: float | None) -> Job:
    """The request that the search began with; GIVEN_ANEW options of this launch replace its own.

    `timeout_sec` is the limit that its words gave. The first job's own may be shorter: what was left of the budget.
    """
    words = first.overrides[: len(first.overrides) - len(first.config.search.setting) - 1]
    search = dataclasses.replace(first.config.search, setting={}, phase="", block=None, cap_sec=None, trial=0)
    others = [
        word for word in requested.overrides if word.startswith("search.") and not word.startswith("search.budget=")
    ]
    if others:
        raise ConfigError(f"{others[0]}: a resumed search keeps its options. Allowed: search.budget")
    changed = [word for word in requested.overrides if word.startswith(GIVEN_ANEW)]
    keys = {word.partition("=")[0] for word in changed}
    words = [word for word in words if word.partition("=")[0] not in keys] + changed
    if "search.budget" in keys:
        search.budget = requested.config.search.budget
    if "timeout_sec" in keys:
        timeout_sec = requested.config.timeout_sec
    sweep, began = dataclasses.replace(first.config.sweep), first.config.search
    seed = first.config.seed - (1 + (began.block or 0) if began.phase == DECIDE else 0)  # the requested seed
    return Job(dataclasses.replace(first.config, search=search, sweep=sweep, timeout_sec=timeout_sec, seed=seed), words)
