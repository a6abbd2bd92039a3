"""The answer of a search: what it claims, and what was and was not compared for it."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path

import pytest
from rich.console import Console

from conf.schema import RunConfig
from tests.support.studied import Writer
from tests.tracking.jobs.search.made_searches import AXES, BEST, make, parsed, result, run, search
from tracking.analysis.search import Axis
from tracking.jobs.plan import Job, exit_code
from tracking.jobs.search import SearchJobs, answer_words, search_of
from tracking.record import Failure, Result, run_folder


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


@pytest.mark.parametrize("asked", [None, 5.0])
def test_runs_that_the_users_time_limit_stopped_are_told_beside_the_budget(asked: float | None) -> None:
    base = Job(make([]), ["model=m"])
    base.config.timeout_sec, base.config.search.budget = asked, "4runs"

    def made_config(words: list[str]) -> RunConfig:
        return dataclasses.replace(make(words), timeout_sec=asked)

    made = SearchJobs(base, (Axis("batch_size", (4, 16)),), made_config)
    run(made, result=lambda job: Result("failed", failure=Failure("timeout", "it took longer than its limit")))
    assert ("timeout_sec=5 stopped 4 runs: give a larger one." in made.words()) is (asked is not None)


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


@pytest.mark.parametrize(
    ("short", "words"),
    [
        ((), r"It is [\d.]+ times as fast \([\d.]+ to [\d.]+\) as gpus=1"),
        ((1,), r"It is at least [\d.]+ times as fast \([\d.]+ or more\) as gpus=1"),
        ((1, 2), ""),
    ],
)
def test_a_ratio_to_a_setting_with_runs_without_the_target_is_a_bound(short: tuple[int, ...], words: str) -> None:
    """If runs of both sides are without it, nothing is known of the ratio."""
    base = make([])
    base.sweep.until_decided = True
    made = search_of(Job(base, ["model=m"]), [], None, ["gpus=1,2"], parsed, make, 0)
    assert made
    while jobs := made.next_jobs():
        for job in jobs:
            job.result = result(job)
            if job.config.seed % 3 == 0 and job.config.gpus in short:
                job.result = ENDS["without the target"]
    assert {figure.num_short > 0 for figure in made.answer().figures if figure.setting["gpus"] in short} <= {True}
    assert re.search(words or "gpus=", made.words()), made.words()
    assert bool(made.answer().ratios) is bool(words)
    assert (" times as fast" in made.words()) is bool(words)


def test_an_answer_counts_the_settings_that_were_compared_and_those_only_explored() -> None:
    made = search()
    run(made)
    answer = made.answer()
    tried = {trial.key for trial, job in made.tried if job}  # One setting cannot be run.
    assert len(tried) < len({trial.key for trial in made.trials})
    assert answer.only_explored is not None
    assert len(answer.compared) + 1 + sum(answer.only_explored.values()) == len(tried)
    assert f"Compared with {len(answer.compared)} other setting" in made.words()


def test_it_names_the_quickest_setting_by_runs_of_their_own() -> None:
    made = search()
    ran = run(made)
    answer = made.answer()
    assert answer.named is not None
    assert {key: answer.named[key] for key in BEST} == BEST
    explored = {job.config.seed for job in ran if job.config.search.phase == "explore"}
    decided = [job for job in ran if job.config.search.phase == "decide"]
    assert decided
    assert not explored & {job.config.seed for job in decided}
    assert all(job.config.search.cap_sec is None for job in decided)
    assert len({job.config.config_hash() for job in ran}) == len(ran)
    assert [job.config.search.trial for job in made.jobs] == list(range(1, len(ran) + 1))
    assert any(job.result and job.result.failure for job in ran)  # some were stopped
    assert exit_code(made.jobs) == 0


def test_a_budget_that_is_spent_by_its_first_run_ends_that_run() -> None:
    base = Job(make([]), ["model=m"])
    base.config.search.budget = "90s"
    made = SearchJobs(base, AXES, make)
    [job] = made.next_jobs()
    assert job.config.timeout_sec == 90.0
    job.result = Result("failed", metrics={"time/censored_sec": 80.0}, failure=Failure("timeout", "late"))
    assert made.words().startswith("Not decided: no run reached the target within the budget.")
    assert "its start included." not in made.words(), "its folder does not say what it took"


@pytest.mark.parametrize(
    ("seconds", "kinds", "said"),
    [
        ([90], ["timeout"], "A run takes more than 90 s, its start included."),
        ([61], [""], "A run took 61 s, its start included."),
        ([61, 52, 90], ["", "", "timeout"], "A run took 52 to 61 s, its start included."),
        ([40], ["search"], "0 decided: 1 run of 60 runs, starts included."),
    ],
)
def test_an_answer_without_a_setting_says_what_a_run_took(
    tmp_path: Path, seconds: list[int], kinds: list[str], said: str
) -> None:
    made = search()
    for number, (each, kind) in enumerate(zip(seconds, kinds, strict=True)):
        [job] = made.next_jobs()
        ended = result(job)
        job.result = dataclasses.replace(ended, failure=Failure(kind, "late"), status="failed") if kind else ended
        job.folder = tmp_path / str(number)
        job.folder.mkdir()
        log = Writer(job.folder / run_folder.JOURNAL, 0)
        for clock_sec in (5.0, 5.0 + each):
            log.event("run_start", clock_sec)
    assert made.words().endswith(said), made.words()


def test_without_exploring_the_best_run_that_reached_leads() -> None:
    base = make([])
    base.sweep.until_decided = True
    made = search_of(Job(base, ["model=m"]), [], None, ["batch_size=4,16"], parsed, make, 0)
    assert made
    for _ in range(2):
        [job] = made.next_jobs()
        job.result = result(job)
        if job.config.search.setting == {"batch_size": 4}:
            job.result.metrics = {"target_reached": 0.0, "time/censored_sec": 3.0}
    assert made.answer().leading == {"batch_size": 16}
    assert "batch_size=16 was best in single runs" in made.words()


def test_a_sweep_whose_runs_the_budget_ended_asks_for_a_larger_one() -> None:
    base = make([])
    base.sweep.until_decided = True
    made = search_of(Job(base, ["model=m"]), [], None, ["batch_size=4,16"], parsed, make, 0)
    assert made
    [job] = made.next_jobs()
    job.result = Result("failed", metrics={"time/censored_sec": 80.0}, failure=Failure("timeout", "late"))
    assert made.answer().why == "budget spent"
    assert made.words().startswith("Not decided: no run reached the target within the budget. Give a larger")


@pytest.mark.parametrize(
    ("tolerance", "words"),
    [
        (None, ""), (0.126, " It is at most 12.6 % above the best of them."),
        (math.inf, " So few runs give no upper bound on its distance to the best of them."),
    ],
)  # fmt: skip
def test_how_far_the_named_setting_may_be_from_the_best(tolerance: float | None, words: str) -> None:
    made = search()
    run(made)
    answer = made.answer()
    [other] = [figure.setting for figure in answer.figures if figure.setting != answer.named][:1]
    alike = dataclasses.replace(answer, alike=(other,), tolerance=tolerance, decided=False)
    [sentence] = [each for each in answer_words._verdict(alike, "time") if each.startswith("It cannot be told")]
    assert sentence == f"It cannot be told apart from {answer_words.setting_text(other)}.{words}"


def test_the_words_say_how_many_finalists_the_budget_left_out() -> None:
    made = search()
    run(made)
    answer, words = made.answer(), "The budget was too small to compare 2 other finalists: give a larger search.budget."
    assert words not in answer_words._verdict(answer, "time")
    assert words in answer_words._verdict(dataclasses.replace(answer, num_left_out=2), "time")
