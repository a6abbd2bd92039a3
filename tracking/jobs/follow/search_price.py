"""The price of a search, by earlier runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conf.schema import ConfigError
from tracking.analysis.statistics import counted
from tracking.jobs.follow import price_words
from tracking.jobs.search import SearchJobs
from tracking.request.search_options import budget_of


def check_budget(search: SearchJobs, gpus: Sequence[Any]) -> None:
    """Raise ConfigError for a budget that the first run would spend, as far as runs of the same setting tell."""
    first = search.jobs[0]
    budget = budget_of(first.config.search)
    if budget.unit == "runs":
        return
    [estimate] = price_words.estimates([first], gpus)
    if estimate is None or estimate.of:
        return
    cost = budget.of(first.config, estimate.seconds.middle)
    if cost <= budget.amount:
        return
    num = search.runs_to_first_look
    cost_words = "" if budget.unit == "seconds" else f", {budget.words(cost)}"
    raise ConfigError(
        f"search.budget={first.config.search.budget}: is less than one run takes here, its start included:"
        f" {price_words.of_job(first, estimate)}{cost_words}. The first look at which setting is best comes after"
        f" about {counted(num, 'run')}; give search.budget={budget.option(num * cost)}"
    )
