"""The answer of a search: what it claims, and what was and was not compared for it."""

from __future__ import annotations

import pytest
from rich.console import Console

from tests.tracking.jobs.search.made_searches import make, result, run, search
from tests.tracking.jobs.search.test_search_jobs import parsed
from tracking.analysis.search import Axis
from tracking.jobs.plan import Job
from tracking.jobs.search import SearchJobs, search_of
from tracking.record import Failure, Result


def only_one_ends(state: str) -> SearchJobs:
    """A search in which the batch of 16 alone reaches the target; runs of the others end in this state."""
    base = make([])
    base.search.budget = "60runs"
    made = SearchJobs(Job(base, ["model=m"]), (Axis("batch_size", (4, 8, 16)),), make)
    while jobs := made.next_jobs():
        for job in jobs:
            job.result = result(job)
            if job.config.search.setting["batch_size"] != 16:
                job.result = ENDS[state]
    return made


ENDS = {
    "stopped": Result("failed", metrics={"time/censored_sec": 900.0}, failure=Failure("search", "stopped")),
    "without the target": Result("finished", metrics={"target_reached": 0.0, "time/censored_sec": 900.0}),
    "failed": Result("failed", failure=Failure("oom", "CUDA out of memory")),
}


@pytest.mark.parametrize("state", list(ENDS))
def test_a_single_finalist_is_not_called_the_quickest_and_what_was_not_compared_is_said(state: str) -> None:
    made = only_one_ends(state)
    answer = made.answer()
    assert answer.named == {"batch_size": 16}
    assert (answer.decided, answer.why, answer.compared, answer.tolerance) == (False, "nothing compared", (), None)
    words = made.words()
    assert words.startswith("batch_size=16: ")
    assert "It was the only finalist, so no runs were compared: it is not shown to be the quickest." in words
    assert f"Exploring ran 2 other settings: 2 {state}" in words
    assert "Not decided within the budget" not in words
    console = Console(width=200, record=True)
    made.show(console)
    assert "only finalist" in console.export_text()


def test_finalists_that_never_reach_the_target_are_told_beside_the_one_that_does() -> None:
    base = make([])
    base.sweep.until_decided = True
    made = search_of(Job(base, ["model=m"]), [], None, ["batch_size=4,16"], parsed, make, 0)
    assert made
    while jobs := made.next_jobs():
        for job in jobs:
            short = job.config.search.setting == {"batch_size": 4}
            job.result = ENDS["without the target"] if short else result(job)
    assert made.answer().decided
    assert made.answer().compared == ({"batch_size": 4},)
    assert "No deciding run of batch_size=4 reached the target." in made.words()
    console = Console(width=200, record=True)
    made.show(console)
    assert "only it reached the target" in console.export_text()


def test_an_answer_counts_the_settings_that_were_compared_and_those_only_explored() -> None:
    made = search()
    run(made)
    answer = made.answer()
    tried = {trial.key for trial in made.trials}
    assert answer.only_explored is not None
    assert len(answer.compared) + 1 + sum(answer.only_explored.values()) == len(tried)
    assert f"Compared with {len(answer.compared)} other setting" in made.words()
