"""The search that a command line asks for: a new one, or one that goes on."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from conf.schema import ConfigError, RunConfig
from tracking.analysis.search import Axis
from tracking.jobs.plan import Job
from tracking.jobs.search import trace
from tracking.jobs.search.search_jobs import SearchJobs
from tracking.request.search_options import axis_of, default_axes, is_search, search_name

MOST_SETTINGS = 4  # that sweep.until_decided takes
ParsedWord = Callable[[str], tuple[str, object, Sequence[object]]]  # a word's key, its value, and what that lists


def search_of(
    asked: Job, resumed: Sequence[Job], folder: Path | None, axes: Sequence[str], parsed: ParsedWord,
    make: Callable[[list[str]], RunConfig],
) -> SearchJobs | None:  # fmt: skip
    """The search, if `asked` is for one or the `resumed` jobs of a sweep's `folder` are of one.

    `axes` are the words of the command line that name them, which `parsed` reads. Raises ConfigError.
    """
    words = list(axes)
    if resumed:
        first = resumed[0].config.search
        if not first.phase:
            if is_search(asked.config):
                name = search_name(asked.config)
                raise ConfigError(f"sweep.resume={asked.config.sweep.resume}: is no search; leave {name} out")
            return None
        asked = _as_it_began(asked, resumed[0])
        if words and words != first.axes:
            raise ConfigError(
                f"{' '.join(words)}: the search goes on with the axes that it has: {' '.join(first.axes)}; leave them"
                " out, or begin a new search"
            )
        words = first.axes
    elif not is_search(asked.config):
        return None
    words = words or default_axes(asked.config)
    asked.config.search.axes = words
    searched = [Axis(**axis_of(word, *parsed(word))) for word in words]
    keys = [axis.key for axis in searched]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise ConfigError(f"{twice}: is an axis twice: {' '.join(words)}; give it once")
    if asked.config.sweep.until_decided:
        check_few(words, searched)
    return SearchJobs(asked, searched, make, resumed, trace.refused(folder) if folder else ())


def check_few(words: Sequence[str], axes: Sequence[Axis]) -> None:
    """Raise ConfigError where these are not the few settings that are told apart without exploring."""
    if (
        not all(axis.choices for axis in axes)
        or not 2 <= math.prod(len(axis.choices) for axis in axes) <= MOST_SETTINGS
    ):
        raise ConfigError(
            f"sweep.until_decided=true {' '.join(words)}: decides among 2 to {MOST_SETTINGS} settings, as"
            " precision=fp32,bf16; search more with +search=quickest"
        )


def _as_it_began(asked: Job, first: Job) -> Job:
    """What the search was asked for with; a budget that is given now replaces its own."""
    words = first.overrides[: len(first.overrides) - len(first.config.search.setting) - 1]
    search = dataclasses.replace(first.config.search, setting={}, phase="", block=None, cap_sec=None, trial=0)
    given = [word for word in asked.overrides if word.startswith("search.budget=")]
    if given:
        search.budget = asked.config.search.budget
        words = [word for word in words if not word.startswith("search.budget=")] + given
    sweep = dataclasses.replace(first.config.sweep, jobs_at_once=asked.config.sweep.jobs_at_once)
    return Job(dataclasses.replace(first.config, search=search, sweep=sweep), words)
