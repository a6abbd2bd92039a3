"""Price estimates of a search from earlier runs: checks its budget, and counts the runs it holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from conf.schema import ConfigError, RunConfig
from tracking.base.number_text import counted
from tracking.jobs.follow import price_words
from tracking.jobs.plan import Job, price
from tracking.jobs.search import SearchJobs
from tracking.request.search_options import Budget, budget_of


def check_budget(search: SearchJobs, gpus: Sequence[Any]) -> str:
    """A note if, judged by earlier runs, the budget ends before the first look; else empty.

    Raises ConfigError if one run costs more than the budget, judged by earlier runs of the same setting.
    """
    config = search.jobs[0].config
    budget, num = budget_of(config.search), search.runs_to_first_look()
    [estimate] = _estimates([config], gpus, imports=True) if budget.unit != "runs" else [None]
    if budget.unit != "runs" and (estimate is None or estimate.of):
        return ""
    cost = budget.used_by(config, estimate.seconds.middle if estimate else 0.0)
    enough = f"Next: give search.budget={budget.option(num * cost)}"
    if estimate and cost > budget.amount:
        cost_words = "" if budget.unit == "seconds" else f", {budget.words(cost)}"
        raise ConfigError(
            f"search.budget={config.search.budget}: is less than one run takes here, its start included:"
            f" {price_words.of_job(search.jobs[0], estimate)}{cost_words}. The first look at which setting is best"
            f" comes after about {counted(num, 'run')}. {enough}"
        )
    fewest = search.runs_to_first_look(fewest=True)
    if fewest * cost <= budget.amount or config.dry_run:  # A dry run prints this beside its price.
        return ""
    return (
        f"search.budget={config.search.budget}: holds about {counted(int(budget.amount / cost), 'run')}, and the first"
        f" look at which setting is best comes after at least {fewest}. {enough}"
    )


def of_search(search: SearchJobs, gpus: Sequence[Any]) -> str:
    """The number of runs that a new search's budget holds, one after the other, and their price.

    A run is assumed to take the mean over the values of the search's axes. The budget may hold more, since many runs
    are stopped early. A search may end before its budget is spent, but not before its first look.
    """
    settings = search.corners()
    estimates = _estimates(settings, gpus, imports=False)
    known = [(_alone(config), each) for config, each in zip(settings, estimates, strict=True) if each]
    given_budget, num_first = settings[0].search.budget, search.runs_to_first_look()
    first = f"the first look at which setting is best comes after about {counted(num_first, 'run')}"
    if not known:
        return f"search.budget={given_budget}: no estimate: no earlier run on this hardware is like its runs; {first}"
    budget = budget_of(settings[0].search)
    nums = _runs_within(budget, known)
    held = "" if budget.unit == "runs" else f" holds about {_runs(nums)}, by earlier runs"
    of = f" of {len(known)} of {len(settings)} settings" if len(known) < len(settings) else ""
    whole, fewest = price.price(known), min(num_first, nums.high)
    if nums.middle < num_first:
        enough = budget.option(num_first * budget.amount / nums.middle)
        first += f", more than that holds. Next: give search.budget={enough}"

    def span(values: price.Range, words: Callable[[float], str]) -> str:
        each = price.Range(*(value / len(known) for value in values))
        most = max(nums.high * each.low, nums.middle * each.middle, nums.low * each.high)
        return f"{words(min(most, fewest * each.low))} to {words(most)}"

    parts = [span(whole.seconds, price_words.time)]
    parts += [f"{span(whole.gpu_hours, price_words.amount)} GPU-hours"] if whole.gpu_hours else []
    parts += [f"{span(whole.usd, price_words.amount)} USD"] if whole.usd else []
    return f"search.budget={given_budget}{held or ', by earlier runs'}{of}: {', '.join(parts)}; {first}"


def _estimates(configs: Sequence[RunConfig], gpus: Sequence[Any], imports: bool) -> list[price.Estimate | None]:
    """An estimate for each config, preferring runs of its setting, then runs alone on the machine."""
    jobs = [Job(config, []) for config in [*map(_alone, configs), *configs]]
    made = price_words.estimates(jobs, gpus, imports)
    pairs = zip(made[: len(configs)], made[len(configs) :], strict=True)
    return [min(filter(None, pair), key=lambda estimate: bool(estimate.of), default=None) for pair in pairs]


def _alone(config: RunConfig) -> RunConfig:
    return dataclasses.replace(config, sweep=dataclasses.replace(config.sweep, jobs_at_once=1))


def _runs_within(budget: Budget, known: Sequence[tuple[RunConfig, price.Estimate]]) -> price.Range:
    """Runs that a budget holds, at the high end, middle and low end of the estimates."""
    if budget.unit == "runs":
        return price.Range(budget.amount, budget.amount, budget.amount)
    costs = [sum(budget.used_by(config, each.seconds[end]) for config, each in known) / len(known) for end in (2, 1, 0)]
    return price.Range(*(budget.amount / cost for cost in costs))


def _runs(nums: price.Range) -> str:
    low, middle, high = (int(num) for num in nums)
    return counted(middle, "run") + (f" ({low} to {high})" if low < high else "")


def how_far_off(folder: Path, num_jobs: int) -> str:
    """A sentence that compares the time of a search's finished runs with their estimate; empty without an estimate."""
    words = price_words.how_far_off(folder, num_jobs)
    return f"{words[0].upper()}{words[1:]}." if words else ""
