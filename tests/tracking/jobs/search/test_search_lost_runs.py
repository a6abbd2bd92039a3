"""Runs of a search that are lost: they are made again while the budget lasts, and one that crashes is given up."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from rich.console import Console

from tests.tracking.jobs.search.made_searches import AXES, lose, make, result, run, search
from tracking.analysis.search import key_of
from tracking.jobs.plan import Job, exit_code
from tracking.jobs.search import SearchJobs, setting_means
from tracking.record import Failure, Result, documents, run_folder


def test_a_run_that_was_lost_is_made_again_and_says_nothing_of_its_setting() -> None:
    made = search()
    lose_each(made, "disk_full")
    assert made.next_jobs() == [], "a machine that loses every run is not tried for ever"
    assert exit_code(made.jobs) == 1
    assert "interrupted" in made.words()


def test_a_run_that_is_lost_is_not_made_again_once_the_budget_is_spent() -> None:
    base = Job(make([]), ["model=m"])
    base.config.search.budget = "1runs"
    made = SearchJobs(base, AXES, make)
    [job] = made.next_jobs()
    lose(job, "signal:9")
    for _ in range(4):
        assert made.next_jobs() == []
    assert not job.given_up, "it ran once"
    words = made.words()
    assert words.startswith("The budget is spent: lost runs are not repeated; give a larger search.budget with")
    assert "interrupted" not in words
    assert "1 run of 1 run" in words, "what it took counts"


def test_what_was_decided_is_told_though_a_run_was_lost_as_the_budget_was_spent() -> None:
    made = search()
    ran = run(made)
    answer = made.answer()
    assert answer.named is not None
    ran[-1].result = None
    lose(ran[-1])
    made._budget = dataclasses.replace(made._budget, amount=float(len(ran)))
    assert made.next_jobs() == []
    assert made.answer().why != "running"
    assert made.answer().named == answer.named


def lose_each(made: SearchJobs, kind: str) -> None:
    """Lose the next run as often as it is made."""
    [job] = made.next_jobs()
    for _ in range(2):
        lose(job, kind)
        [again] = made.next_jobs()
        assert job.result is not None, "who followed it has it as it ended"
        assert (again.overrides, again.result) == (job.overrides, None), "the same, once more"
        assert made.jobs == [again]
        job = again
    lose(job, kind)


@pytest.mark.parametrize("kind", ["signal:11", "signal:6", "signal:9"])
def test_a_setting_that_crashes_each_time_has_failed_and_the_search_goes_on(kind: str) -> None:
    made = search()
    lose_each(made, kind)
    goes_on = run(made)
    assert made.trials[0].state == "failed"
    assert len(goes_on) > 10
    assert made.answer().named is not None
    assert exit_code(made.jobs) == 0
    console = Console(width=200, record=True)
    made.show(console)
    assert f"crashed each time: gpus=1 batch_size=8 lr=0.01: killed: {kind}: lost" in console.export_text()


def test_a_deciding_run_that_was_resumed_by_hand_is_repeated_and_in_no_mean(tmp_path: Path) -> None:
    made = search()
    ran = run(made)
    [other, *_] = [job for job in ran if job.config.search.phase == "decide"]
    assert other.result is not None
    before = setting_means.means_of(made.jobs)
    other.folder = tmp_path
    other.result.resumes, other.result.metrics["epochs/to_accuracy"] = [{"epoch_num": 1}], 1e6
    documents.write_json(tmp_path / run_folder.RESULT, other.result)
    assert not other.settled
    key = key_of(other.config.search.setting)
    assert setting_means.means_of(made.jobs)[key]["epochs"] == pytest.approx(before[key]["epochs"], rel=0.1)
    made = search(made.jobs)
    [again] = made.next_jobs()
    assert (again.overrides, again.lost, again.result) == (other.overrides, [tmp_path], None)
    again.result = result(again)
    assert "1 run was interrupted and resumed, and was not counted." in made.words()
    assert setting_means.means_of(made.jobs) == before


def test_where_every_run_fails_the_answer_says_why() -> None:
    made = search()
    for _ in range(60):
        for job in made.next_jobs():
            job.result = Result("failed", failure=Failure("oom", "CUDA out of memory"))
    assert made.words().startswith("Every run failed. The first: failed: oom")
