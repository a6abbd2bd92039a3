"""A search that was interrupted goes on with its runs and its axes, and with what it is told now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from conf.launch_options import SearchConfig
from conf.schema import ConfigError, RunConfig
from tests.support.composing import ROOT, composed
from tests.tracking.jobs.search.made_searches import make, on_slurm, parsed, result, run, search
from tracking.jobs.plan import Job, sweep
from tracking.jobs.queues.dry_run import show
from tracking.jobs.search import search_of
from tracking.jobs.search.search_request import check_unchanged
from tracking.machine.stacks import RefusedStacks
from tracking.record import Failure, Result, run_folder
from tracking.request import stored_config


def test_a_search_that_was_interrupted_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole = search()
    words = [job.overrides for job in run(whole)]
    begun = search()
    run(begun, most=9)
    begun.write(tmp_path)
    goes_on = search(begun.jobs, tmp_path)
    run(goes_on)
    assert [job.overrides for job in goes_on.jobs] == words
    assert goes_on.answer() == whole.answer()


def test_a_search_says_how_many_jobs_in_the_queue_it_goes_on_with() -> None:
    begun = on_slurm(exclusive=True)
    jobs = begun.next_jobs()
    assert begun.begins().endswith("in 60runs")
    for job in jobs:
        job.folder = Path("runs/x")  # submitted
    jobs[0].result = result(jobs[0])
    goes_on = on_slurm(exclusive=True, jobs=jobs)
    assert goes_on.begins().endswith(f"in 60runs, 1 run made, following {len(jobs) - 1} jobs in the queue")
    new = goes_on.next_jobs()
    assert 0 < len(new) <= 5 - (len(jobs) - 1), "they keep their places"


def test_a_dry_run_of_a_resumed_search_prices_what_is_left_of_its_budget() -> None:
    begun = search()
    assert begun.left == "", "a new search has its whole budget"
    for job in run(begun, most=9):
        job.folder = Path("runs/x")
    goes_on = search(begun.jobs)
    console = Console(width=200, record=True)
    show([], RefusedStacks(make([]), []), [], console, goes_on)
    assert "price: at most what is left of the budget: 51 runs" in console.export_text()


def test_a_resumed_sweep_knows_the_folders_of_the_runs_that_were_lost(tmp_path: Path) -> None:
    job = Job(make([]), [])
    folders = {job.config.config_hash(): [run_folder.create(tmp_path, name) for name in "abc"]}
    own = folders[job.config.config_hash()]
    run_folder.write_result(own[0], Result("killed", failure=Failure("signal:9", "lost")))
    run_folder.write_result(own[1], Result("finished"))
    sweep.find_results([job], folders)
    assert (job.folder, job.lost) == (own[1], [own[0], own[2]])


def test_a_resumed_sweep_takes_the_whole_run_of_a_search_before_one_that_was_resumed_by_hand(tmp_path: Path) -> None:
    [job] = search().next_jobs()
    own = [tmp_path / name for name in ("by-hand", "whole")]
    for path, resumes in zip(own, ([{"epoch_num": 1}], []), strict=True):
        path.mkdir()
        run_folder.write_result(path, Result("finished", resumes=resumes))
    sweep.find_results([job], {job.config.config_hash(): own})
    assert (job.folder, job.lost) == (own[1], own[:1])


def test_a_resumed_search_keeps_its_axes_and_may_have_another_budget() -> None:
    words = ["model=m", "search=quickest", "search.budget=30runs"]
    begun = search_of(Job(make([]), words), [], None, ["batch_size=4,8"], parsed, make, 0)
    assert begun
    run(begun, most=2)
    asked = make([])
    asked.search, asked.sweep.resume = SearchConfig(budget="90runs"), "ID"
    goes_on = search_of(Job(asked, ["sweep.resume=ID", "search.budget=90runs"]), begun.jobs, None, [], parsed, make, 0)
    assert goes_on
    assert "in 90runs, 2 runs made" in goes_on.begins()
    [job] = goes_on.next_jobs()
    assert job.overrides[:3] == ["model=m", "search=quickest", "search.budget=90runs"]
    with pytest.raises(ConfigError, match="a resumed search keeps its axes: batch_size=4,8"):
        search_of(Job(asked, ["sweep.resume=ID"]), begun.jobs, None, ["batch_size=4,16"], parsed, make, 0)


@pytest.mark.parametrize("given", [None, 60.0])
def test_a_run_that_the_budget_cut_off_is_not_said_to_be_stopped_by_timeout_sec(given: float | None) -> None:
    """The first run may take the whole budget, of 60 s; a resume takes the user's own limit from the words."""

    def budgeted(words: list[str]) -> RunConfig:
        config = make([word for word in words if not word.startswith("timeout_sec=")])
        config.search.budget = "60s"
        limits = [float(word.partition("=")[2]) for word in words if word.startswith("timeout_sec=")]
        config.timeout_sec = limits[-1] if limits else None
        return config

    words = ["model=m", "search=quickest", *([f"timeout_sec={given:g}"] if given else [])]
    begun = search_of(Job(budgeted(words), words), [], None, ["batch_size=4,8"], parsed, budgeted, 0)
    assert begun
    [job] = begun.next_jobs()
    assert job.config.timeout_sec == 60.0
    job.result = Result("failed", metrics={"time/censored_sec": 55.0}, failure=Failure("timeout", "late"))

    def resumed(more: list[str]) -> str:
        asked = budgeted(told := ["sweep.resume=ID", "search.budget=30min", *more])
        asked.search, asked.sweep.resume = SearchConfig(budget="30min"), "ID"
        goes_on = search_of(Job(asked, told), begun.jobs, None, [], parsed, budgeted, 0)
        assert goes_on
        return goes_on.words()

    assert ("timeout_sec=60 stopped 1 run" in resumed([])) is (given is not None)
    assert "timeout_sec" not in resumed(["timeout_sec=120"])


def test_a_resumed_search_has_its_new_runs_where_it_is_told_now() -> None:
    words = ["model=m", "search=quickest", "tracking.offline=false", "search.budget=30runs"]
    begun = search_of(Job(make([]), words), [], None, ["batch_size=4,8"], parsed, make, 0)
    assert begun
    run(begun, most=1)
    asked = make([])
    asked.sweep.resume = "ID"
    told = ["sweep.resume=ID", "tracking.offline=true", "cluster=slurm", "cluster.partition=gpu"]
    begun.jobs[0].config.cluster.kind = "slurm"  # as the resumed sweep has it by now
    goes_on = search_of(Job(asked, told), begun.jobs, None, [], parsed, make, 0)
    assert goes_on
    [job, *_] = goes_on.next_jobs()
    assert job.overrides[:6] == ["model=m", "search=quickest", "search.budget=30runs", *told[1:]]


@pytest.mark.parametrize("told", [(), ("sweep.jobs_at_once=3",)])
def test_a_resumed_search_explores_as_many_at_once_as_a_new_one(told: tuple[str, ...]) -> None:
    """Its first job took all GPUs, and so had no others beside it."""

    def on_four(words: list[str]) -> RunConfig:
        config = make([word for word in words if not word.startswith("sweep.")])
        typed = [int(word.partition("=")[2]) for word in words if word.startswith("sweep.jobs_at_once=")]
        config.sweep.jobs_at_once = typed[-1] if typed else 4
        return config

    words = ["model=m", "search=quickest"]
    begun = search_of(Job(on_four(words), words), [], None, ["batch_size=8,16", "gpus=4,1"], parsed, on_four, 4)
    assert begun
    run(begun, most=4)
    begun.jobs.sort(key=lambda job: -job.config.num_gpus())
    assert [begun.jobs[0].config.sweep.jobs_at_once, begun.jobs[-1].config.sweep.jobs_at_once] == [1, 4]
    begun.jobs[-1].result = None  # it waits
    asked = make([])
    asked.sweep.resume = "ID"
    goes_on = search_of(Job(asked, ["sweep.resume=ID", *told]), begun.jobs, None, [], parsed, on_four, 4)
    assert goes_on
    at_once = 3 if told else 4
    assert [begun.jobs[-1].config.sweep.jobs_at_once, asked.sweep.jobs_at_once] == [at_once] * 2
    later = run(goes_on, most=4)
    explored = {(job.config.search.phase, job.config.num_gpus(), job.config.sweep.jobs_at_once) for job in later}
    assert ("explore", 1, at_once) in explored
    assert all(number == (at_once if phase == "explore" and gpus < 4 else 1) for phase, gpus, number in explored)


def test_a_sweep_that_is_no_search_is_not_gone_on_with_as_one() -> None:
    asked = make([])
    asked.sweep.resume = "ID"
    with pytest.raises(ConfigError, match="is not a search"):
        search_of(Job(asked, []), [Job(make([]), [])], None, [], parsed, make, 0)


def test_words_that_were_changed_are_not_gone_on_with() -> None:
    begun = search_of(Job(make([]), ["model=m"]), [], None, ["batch_size=4,8"], parsed, make, 0)
    assert begun
    run(begun, most=1)
    begun.jobs[0].overrides.insert(0, "gpus=4")
    asked = make([])
    asked.sweep.resume = "ID"
    with pytest.raises(ConfigError, match="gives another gpus than the search began with"):
        search_of(Job(asked, []), begun.jobs, None, [], parsed, make, 0)


def test_a_search_of_before_there_were_newer_options_goes_on() -> None:
    stored = json.loads((ROOT / "tests/fixtures/gpt-before-llama.json").read_text())
    before = Job(stored_config.from_dict(RunConfig, stored["config"]), stored["words"])
    check_unchanged(before, composed)
    before.config.model.hparams["layers"] = 13
    with pytest.raises(ConfigError, match="gives another model than the search began with"):
        check_unchanged(before, composed)


def test_a_resumed_search_takes_an_alert() -> None:
    begun = search_of(Job(make([]), ["model=m"]), [], None, ["batch_size=4,8"], parsed, make, 0)
    assert begun
    run(begun, most=1)
    begun.jobs[0].config.alert.command = "tell"  # as the resumed sweep has it by now
    asked = make([])
    asked.sweep.resume = "ID"
    told = ["sweep.resume=ID", "alert.command=tell"]
    goes_on = search_of(Job(asked, told), begun.jobs, None, [], parsed, make, 0)
    assert goes_on
    [job, *_] = goes_on.next_jobs()
    assert "alert.command=tell" in job.overrides
