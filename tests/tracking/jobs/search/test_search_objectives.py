"""A run's value by each objective, its cost, and a search by two objectives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from conf.launch_options import SearchConfig
from conf.schema import RunConfig
from tests.tracking.jobs.search.made_searches import AXES, lose, make, result, run, search, took
from tracking.analysis.search import Answer, Figure, SearchTrial, Second
from tracking.jobs.plan import Job
from tracking.jobs.search import SearchJobs, answer_in, answer_words, fronts, trace_file
from tracking.jobs.search.trial_job import cap_sec, trial_of, trials_of
from tracking.record import Failure, Result
from tracking.request.search_options import Budget, budget_of


def test_of_the_time_that_runs_have_in_common_each_costs_its_part(tmp_path: Path) -> None:
    def job(name: str, start: float, seconds: float, gpus: int) -> Job:
        made = Job(make([f"gpus={gpus}"]), [], folder=took(tmp_path / name, start, seconds))
        made.config.search = SearchConfig("quickest", phase="explore", setting={"gpus": gpus})
        made.result = Result("finished", metrics={"time/to_accuracy_sec": 1.0, "target_reached": 1.0})
        return made

    jobs = [job("a", 0, 10, 1), job("b", 5, 10, 1), job("c", 20, 10, 2)]

    def costs(unit: str) -> list[float]:
        return [trial.cost for trial in trials_of(jobs, Budget(1.0, unit))]

    assert costs("seconds") == pytest.approx([7.5, 7.5, 10])
    assert costs("usd") == pytest.approx([0.075, 0.075, 0.1]), "the machine is paid for once"
    for each in jobs:
        each.config.price_per_gpu_hour = 36.0
    assert costs("usd") == pytest.approx([0.1, 0.1, 0.1]), "each pays for its own GPUs"
    assert costs("gpu-hours") == pytest.approx([10 / 3600, 10 / 3600, 20 / 3600])
    assert costs("runs") == [1, 1, 1]
    assert [trial.cost_alone for trial in trials_of(jobs, Budget(1.0, "seconds"))] == pytest.approx([10, 10, 10])
    jobs[1].result = None
    assert costs("seconds") == pytest.approx([7.5, 0, 5]), "one that is running has its part, too"
    jobs[1].lost = [took(tmp_path / "lost", -10, 4)]
    assert costs("seconds") == pytest.approx([7.5, 4, 5]), "what was lost was spent"


def test_a_run_that_was_lost_counts_in_the_budget(tmp_path: Path) -> None:
    made = search()
    [job] = made.next_jobs()
    lose(job)
    job.folder = took(tmp_path / "a", 0, 10)
    [again] = made.next_jobs()
    budget = Budget(60.0, "seconds")
    assert trial_of(again, budget).cost == 10
    again.folder, again.result = took(tmp_path / "b", 20, 7), result(again)
    assert trial_of(again, budget).cost == 17
    assert trial_of(again, budget).cost_alone == 7, "what a run of the setting takes"
    assert trial_of(again, Budget(40.0, "runs")).cost == 2
    lose(again)
    assert trial_of(again, budget).cost == 17, "one that is lost, too"


def test_the_front_holds_what_no_other_setting_beats_in_time_and_cost() -> None:
    def point(gpus: int, seconds: float, usd: float, phase: str = "decide", seed: int = 1) -> fronts.Point:
        return fronts.Point(SearchTrial({"gpus": gpus}, seed, phase), seconds, usd)

    runs = [
        point(4, 4.0, 5.0), point(4, 6.0, 7.0, seed=2), point(4, 1.0, 1.0, "explore"), point(2, 8.0, 4.0),
        point(3, 9.0, 6.0), point(1, 20.0, 2.0, "explore"),
    ]  # fmt: skip
    means = fronts.means(runs, [])
    assert [(trial.setting["gpus"], seconds) for trial, seconds, _ in means] == [
        (4, 5.0),
        (2, 8.0),
        (3, 9.0),
        (1, 20.0),
    ]
    assert [trial.setting["gpus"] for trial, _, _ in fronts.front_of(means)] == [4, 2]  # A lone run of 1 may be lucky.


@pytest.mark.parametrize("state", ["missed", "stopped", "failed"])
def test_a_setting_with_a_deciding_run_without_the_target_is_not_on_the_front(state: str) -> None:
    fast, slow = {"gpus": 4}, {"gpus": 1}
    runs = [
        fronts.Point(SearchTrial(slow, 3, "decide"), 20.0, 2.0),
        fronts.Point(SearchTrial(fast, 3, "decide"), 5.0, 1.0),
    ]
    begun = [SearchTrial(fast, 4, "decide", 1)]
    assert [point.trial.setting for point in fronts.front_of(fronts.means(runs, begun))] == [fast]
    trials = [SearchTrial(fast, 4, "decide", 1, state=state), SearchTrial(slow, 1, "explore", state=state)]
    assert [point.trial.setting for point in fronts.front_of(fronts.means(runs, trials))] == [slow]


@pytest.mark.parametrize(
    ("objective", "cap", "value"), [("time", 30.0, 12.0), ("cost", 0.3, 0.12), ("energy", None, None)]
)
def test_a_trial_is_in_the_unit_of_its_objective(objective: str, cap: float | None, value: float | None) -> None:
    job = Job(make([]), [])
    job.config.search = SearchConfig("quickest", objective, phase="explore", setting={"gpus": 1}, cap_sec=30.0)
    metrics = {"time/to_accuracy_sec": 12.0, "cost/to_accuracy_usd": 0.12, "target_reached": 1.0}
    job.result = Result("finished", metrics=metrics)
    trial = trial_of(job, budget_of(job.config.search))
    assert (trial.cap, trial.value) == (cap, value)


@pytest.mark.parametrize(
    ("kind", "state", "settled"),
    [
        ("search", "stopped", True), ("timeout", "stopped", True), ("nan", "missed", True), ("oom", "failed", True),
        ("signal:15", "running", False), ("preempted", "running", False), ("signal:9", "running", False),
        ("node_fail", "running", False), ("disk_full", "running", False), ("error", "failed", True),
    ],
)  # fmt: skip
def test_how_a_run_ended_decides_whether_it_is_run_again(kind: str, state: str, settled: bool) -> None:
    job = Job(make([]), [])
    job.config.search = SearchConfig("quickest", phase="explore", setting={"gpus": 1})
    job.result = Result("failed", metrics={"time/censored_sec": 3.0}, failure=Failure(kind, "so"))
    assert trial_of(job, budget_of(job.config.search)).state == state
    assert job.settled == settled


def test_a_diverged_run_is_as_bad_as_one_that_failed() -> None:
    job = Job(make([]), [])
    job.config.search = SearchConfig("quickest", phase="explore", setting={"gpus": 1})
    job.result = Result("failed", metrics={"time/censored_sec": 1.0}, failure=Failure("nan", "loss is nan"))
    trial = trial_of(job, budget_of(job.config.search))
    assert (trial.state, trial.censored_at) == ("missed", None)


def by_time_and_cost(objective: str = "time,cost") -> SearchJobs:
    """A search by both, in which a GPU has its price: so the quickest needs two, and the cheapest one."""

    def priced(words: list[str]) -> RunConfig:
        config = make(words)
        config.search.objective = objective
        config.instance.price_per_hour = 36.0 * config.num_gpus()
        return config

    return search(make=priced)


def paid(job: Job) -> Result:
    """How a run of these settings ends, with the cost of its time."""
    ended, price = result(job), (job.config.instance.price_per_hour or 0.0) / 3600
    if "time/to_accuracy_sec" in ended.metrics:
        ended.metrics["cost/to_accuracy_usd"] = ended.metrics["time/to_accuracy_sec"] * price
    else:
        ended.metrics["cost/usd"] = ended.metrics["time/censored_sec"] * price
    return ended


def test_a_search_by_time_and_cost_says_both_wherever_it_says_one(tmp_path: Path) -> None:
    made = by_time_and_cost()
    assert "a search for the least time and the least cost over gpus=1,2" in made.begins()
    run(made, result=paid)
    quickest, cheapest = made.answers()
    assert quickest.named is not None
    assert cheapest.named is not None
    assert (quickest.named["gpus"], cheapest.named["gpus"]) == (2, 1)
    words = made.words()
    assert "Quickest: gpus=2 batch_size=16" in words
    assert "Cheapest: gpus=1 batch_size=16" in words
    assert "USD (" in words
    assert "times as cheap" in words
    assert "The front (" in words
    assert ": gpus=2" in words
    made.finish(tmp_path)
    written = json.loads((tmp_path / "search.json").read_text())
    assert written["asked"]["objective"] == "time,cost"
    assert written["answer"] == made.told(tmp_path)
    answer = written["answer"]
    assert [answer["objective"], answer["second"]["objective"]] == ["time", "cost"]
    assert [answer["named"]["gpus"], answer["second"]["named"]["gpus"]] == [2, 1]
    assert [(point["setting"]["gpus"], sorted(point)) for point in answer["front"]] == [
        (2, ["cost", "setting", "time"]), (1, ["cost", "setting", "time"]),
    ]  # fmt: skip
    told = made.told(tmp_path)
    assert told["second"]["named"]["gpus"] == 1
    assert told["words"] == words == answer_in(tmp_path)["words"]
    look = made.new_look()
    assert look
    assert look["second"]["objective"] == "cost"
    console = Console(width=250, record=True)
    made.show(console)
    shown = console.export_text()
    assert "quickest" in shown
    assert "cheapest" in shown
    assert "to the target (USD)" in shown
    stopped = [trial for trial in made.trials if trial.state == "stopped"]
    assert stopped
    assert all(trial.second and trial.second.censored_at and trial.second.cap for trial in stopped)
    assert best_of_first_axes(tmp_path) == [2, 1]


def test_the_state_is_written_while_a_finalist_of_one_objective_alone_is_running(tmp_path: Path) -> None:
    made, num_written = by_time_and_cost(), 0
    while jobs := made.next_jobs():
        if jobs[0].config.search.phase == "decide":
            made.write(tmp_path)
            answer = json.loads((tmp_path / "search.json").read_text())["answer"]
            for part in (answer, answer["second"]):
                assert jobs[0].config.search.setting in [figure["setting"] for figure in part["figures"]]
            num_written += 1
        for job in jobs:
            job.result = paid(job)
    assert num_written


def test_a_finalist_of_one_objective_alone_has_its_row_and_empty_cells() -> None:
    ours, both, theirs = {"gpus": 1}, {"gpus": 2}, {"gpus": 4}
    first = Answer(True, "decided", both, figures=(Figure(both, 2, 3.0), Figure(ours, 0, None)))
    second = Answer(True, "decided", both, figures=(Figure(both, 2, 0.5), Figure(theirs, 2, 0.7)))
    drawn = answer_words.table([first, second], ["time", "cost"], {})
    rows = list(zip(*(column.cells for column in drawn.columns), strict=True))
    assert [row[:6] for row in rows] == [
        ("gpus=2", "3", "", "0.5", "", "2"), ("gpus=4", "", "", "0.7", "", "2"), ("gpus=1", "", "", "", "", "0"),
    ]  # fmt: skip


def best_of_first_axes(folder: Path) -> list[Any]:
    return [setting["gpus"] for setting in trace_file.best_of(folder, AXES[:1])]


def test_a_run_of_two_objectives_is_stopped_only_beyond_both_of_its_caps() -> None:
    job = Job(make(["gpus=1"]), [])  # 0.01 USD a second
    job.config.search = SearchConfig("quickest", "time,cost", phase="explore", setting={"gpus": 1})
    trial = SearchTrial({"gpus": 1}, 1, "explore", cap=10.0, second=Second(0.3))
    assert cap_sec(job, trial) == pytest.approx(30.0)
    assert cap_sec(job, SearchTrial({"gpus": 1}, 1, "explore", cap=10.0, second=Second(None))) is None
    job.config.search.objective = "time,energy"
    assert cap_sec(job, trial) is None, "no clock says what energy it has taken"


def test_a_run_without_a_value_by_one_of_both_objectives_has_failed() -> None:
    job = Job(make([]), [])
    job.config.search = SearchConfig("quickest", "time,energy", phase="explore", setting={"gpus": 1})
    job.result = Result("finished", metrics={"time/to_accuracy_sec": 12.0, "target_reached": 1.0})
    assert trial_of(job, budget_of(job.config.search)).state == "failed"
    job.result.metrics["energy/to_accuracy_joules"] = 500.0
    trial = trial_of(job, budget_of(job.config.search))
    assert (trial.state, trial.value, trial.second) == ("reached", 12.0, Second(value=500.0))
