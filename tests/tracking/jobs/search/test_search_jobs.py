"""A search's jobs: made of proposals, capped, kept in the sweep's order, and gone on with after an interruption."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from conf.dataset_options import DatasetConfig
from conf.launch_options import InstanceConfig, SearchConfig
from conf.schema import (
    ConfigError,
    ModelConfig,
    OptimizerConfig,
    PrecisionConfig,
    RunConfig,
    StackConfig,
)  # fmt: skip
from tests.support.composing import ROOT, composed
from tests.support.studied import Writer
from tracking.analysis.search import Answer, Axis, Figure, SearchTrial, Second
from tracking.jobs.plan import Job, exit_code, sweep
from tracking.jobs.search import SearchJobs, answer_words, fronts, pictures, search_of, trace_file, words_of
from tracking.jobs.search.search_request import check_unchanged
from tracking.jobs.search.trial_of_job import cap_sec, trial_of, trials_of
from tracking.record import Failure, Result, journal, run_folder
from tracking.request import stored_config
from tracking.request.search_options import Budget, budget_of

AXES = (Axis("gpus", (1, 2)), Axis("batch_size", (4, 8, 16)), Axis("model.optimizer.lr", low=0.001, high=0.1, log=True))
BEST = {"gpus": 2, "batch_size": 16}  # of what `result` gives


def make(words: list[str]) -> RunConfig:
    """The config of these words, without Hydra."""
    given = dict(word.split("=", 1) for word in words)
    if given.get("gpus") == "2" and given.get("batch_size") == "4":
        raise ConfigError("batch_size=4: too small for two")
    return RunConfig(
        model=ModelConfig(
            "m", "m:M", 8, {"accuracy": [0, 1, "higher"]}, {"d": {"accuracy": 0.9}},
            OptimizerConfig(float(given.get("model.optimizer.lr", 0.01))),
        ),
        dataset=DatasetConfig("d"),
        precision=PrecisionConfig("fp32", "32"),
        stack=StackConfig("native"),
        instance=InstanceConfig(price_per_hour=36.0),
        gpus=int(given.get("gpus", 1)),
        seed=int(given.get("seed", 1)),
        batch_size=int(given["batch_size"]) if "batch_size" in given else None,
        search=SearchConfig("quickest", budget="60runs"),
    )  # fmt: skip


def result(job: Job) -> Result:
    """How a run of these settings ends: most of it known, 2 % of it noise; stopped at its cap."""
    config = job.config
    lr, batch, gpus, cap = (
        config.model.optimizer.lr,
        config.device_batch_size(),
        config.num_gpus(),
        config.search.cap_sec,
    )
    epochs = math.ceil(8 + 3 * abs(math.log(lr / (0.002 * batch))) ** 2)
    each = (1 + 8 / batch) / gpus**0.8 * random.Random(f"{lr} {batch} {gpus} {config.seed}").uniform(0.98, 1.02)
    if cap is not None and epochs * each > cap:
        return Result("failed", metrics={"time/censored_sec": cap}, failure=Failure("search", "stopped"))
    metrics = {
        "time/to_accuracy_sec": epochs * each, "target_reached": 1.0, "epochs/to_accuracy": float(epochs),
        "time/evaluation_interval_sec": each, "cost/to_accuracy_usd": epochs * each / 100, "eval/best_accuracy": 0.91,
    }  # fmt: skip
    return Result("finished", metrics=metrics, targets=config.targets())


def search(jobs: Sequence[Job] = (), folder: Path | None = None) -> SearchJobs:
    base = Job(make([]), ["model=m", "seed=1"])
    base.config.search.axes = ["gpus=1,2"]
    return SearchJobs(base, AXES, make, jobs, trace_file.refused(folder, AXES) if folder else ())


def run(made: SearchJobs, most: int = 1000) -> list[Job]:
    """Run its jobs one after the other; those that were run."""
    ran: list[Job] = []
    while len(ran) < most and (jobs := made.next_jobs()):
        for job in jobs:
            job.result = result(job)
            ran.append(job)
    return ran


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


def test_its_words_say_the_setting_the_ratio_and_what_it_took() -> None:
    made = search()
    run(made)
    console = Console(width=200, record=True)
    made.show(console)
    said = console.export_text()
    assert "gpus=2 batch_size=16" in said
    assert "times as fast" in said
    assert "of 60 runs, starts included" in said
    assert "not run: gpus=2 batch_size=4" in said
    assert "batch_size=4: too small for two" in said


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


def test_runs_on_one_gpu_explore_side_by_side_and_runs_that_decide_are_alone() -> None:
    base = Job(make([]), ["model=m", "seed=1"])
    base.config.sweep.jobs_at_once = 2
    made = SearchJobs(base, AXES, make, num_gpus=2)
    first = made.next_jobs()
    assert [job.config.num_gpus() for job in first] == [1, 1], "one on each; what needs both waits"
    assert made.next_jobs() == []
    for job in first:
        assert made.next_jobs() == []
        job.result = result(job)
    [both] = made.next_jobs()
    assert both.config.num_gpus() == 2
    both.result = result(both)
    run(made)
    at_once = {job.config.search.phase: job.config.sweep.jobs_at_once for job in made.jobs}
    assert at_once == {"explore": 2, "decide": 1}, "what the tag of the runs says"
    assert made.answer().named == search_alone().named


def search_alone() -> Answer:
    made = search()
    run(made)
    return made.answer()


def took(folder: Path, start: float, seconds: float) -> Path:
    """The folder of a run from one second to another one."""
    folder.mkdir()
    log = journal.Journal(folder / "journal.jsonl")
    log.append(journal.Record("event", int(1e3 * (1e9 + start)), start, "init_start"))
    log.append(journal.Record("event", int(1e3 * (1e9 + start + seconds)), start + seconds, "run_stop"))
    log.close()
    return folder


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


def test_a_running_job_is_waited_for() -> None:
    made = search()
    [job] = made.next_jobs()
    assert made.next_jobs() == []
    job.result = result(job)
    assert made.next_jobs()


def test_the_trace_holds_every_trial_and_the_answer(tmp_path: Path) -> None:
    made = search()
    ran = run(made)
    made.finish(tmp_path)
    written: dict[str, Any] = json.loads((tmp_path / "search.json").read_text())
    assert written["version"] == 1
    assert written["asked"] == {"objective": "time", "budget": "60runs", "axes": ["gpus=1,2"]}
    tried = [row for row in written["trials"] if row["run"]]
    assert [row["setting"] for row in tried] == [job.config.search.setting for job in ran]
    assert {key: written["answer"]["named"][key] for key in BEST} == BEST
    assert [group["group"] for group in written["answer"]["groups"]] == [1, 2]
    assert words_of(tmp_path) == written["answer"]["words"] == made.words()
    assert words_of(tmp_path / "nowhere") == ""


def test_the_trace_of_a_search_that_runs_says_that_there_is_no_answer_yet(tmp_path: Path) -> None:
    made = search()
    run(made, most=3)
    made.write(tmp_path)
    assert words_of(tmp_path) == "No answer yet, after 3 runs."


def test_a_resumed_sweep_knows_the_folders_of_the_runs_that_were_lost(tmp_path: Path) -> None:
    job = Job(make([]), [])
    folders = {job.config.config_hash(): [run_folder.create(tmp_path, name) for name in "abc"]}
    own = folders[job.config.config_hash()]
    run_folder.write_result(own[0], Result("killed", failure=Failure("signal:9", "lost")))
    run_folder.write_result(own[1], Result("finished"))
    sweep.find_results([job], folders)
    assert (job.folder, job.lost) == (own[1], [own[0], own[2]])


@pytest.mark.pictures
def test_its_pictures_are_drawn(tmp_path: Path) -> None:
    made = search()
    run(made)
    made.finish(tmp_path)
    assert {path.name for path in tmp_path.glob("*.png")} == {
        "search_progress.png", "search_landscape.png", "search_front.png",
    }  # fmt: skip


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


def test_the_front_is_of_what_was_decided_and_no_setting_on_it_missed(tmp_path: Path) -> None:
    def of(gpus: int, phase: str, state: str = "reached") -> SearchTrial:
        return SearchTrial({"gpus": gpus}, 1, phase, 1 if phase == "decide" else 0, state=state)

    lucky, named, unsteady = of(2, "explore"), of(4, "decide"), of(1, "decide")
    points = [fronts.Point(lucky, 15.0, 1.0), fronts.Point(named, 15.6, 2.0), fronts.Point(unsteady, 20.0, 0.5)]
    assert fronts.front_of(points) == [(named, 15.6, 2.0), (unsteady, 20.0, 0.5)]
    steady = fronts.means(points[1:], [named, unsteady, of(1, "decide", "missed")])
    assert steady == points[1:2]
    pictures.write_front(tmp_path, steady, ("time", "cost"))
    assert not (tmp_path / "search_front.png").exists(), "one setting has no front"


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


def parsed(word: str) -> tuple[str, object, list[int]]:
    key, _, values = word.partition("=")
    return key, None, [int(value) for value in values.split(",")]


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
    with pytest.raises(ConfigError, match="goes on with the axes that it has: batch_size=4,8"):
        search_of(Job(asked, ["sweep.resume=ID"]), begun.jobs, None, ["batch_size=4,16"], parsed, make, 0)


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


def test_a_sweep_that_is_no_search_is_not_gone_on_with_as_one() -> None:
    asked = make([])
    asked.sweep.resume = "ID"
    with pytest.raises(ConfigError, match="is no search"):
        search_of(Job(asked, []), [Job(make([]), [])], None, [], parsed, make, 0)


def test_an_axis_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="batch_size: is an axis twice"):
        search_of(Job(make([]), []), [], None, ["batch_size=4,8", "batch_size=16,32"], parsed, make, 0)


def test_where_nothing_can_be_run_the_first_reason_is_told() -> None:
    def refuse(words: list[str]) -> RunConfig:
        raise ConfigError("gpus=1: none is there")

    made = SearchJobs(Job(make([]), []), AXES, refuse)
    with pytest.raises(ConfigError, match="none of its settings can be run: gpus=1: none is there"):
        made.next_jobs()


def test_a_search_from_an_earlier_one_begins_with_its_best_settings_and_measures_them_anew(tmp_path: Path) -> None:
    earlier = search()
    run(earlier)
    (tmp_path / "earlier").mkdir()
    earlier.finish(tmp_path / "earlier")
    named = earlier.answer().named
    assert named
    base = Job(make([]), ["model=m"])
    base.config.runs_dir, base.config.search.source = str(tmp_path), "earlier"
    made = SearchJobs(base, (Axis("gpus", (4, 8)), *AXES[1:]), make)
    tried = [job.config.search.setting for job in run(made, most=2)]
    inner = {key: value for key, value in named.items() if key != "gpus"}
    assert tried == [{"gpus": 4, **inner}, {"gpus": 8, **inner}]
    base.config.search.source = "later"
    with pytest.raises(ConfigError, match=r"search\.from=later: .* there are: earlier"):
        SearchJobs(base, AXES, make)


def test_a_sweep_is_repeated_until_it_is_decided() -> None:
    base = make([])
    base.sweep.until_decided = True
    made = search_of(Job(base, ["model=m"]), [], None, ["batch_size=4,16"], parsed, make, 0)
    assert made
    assert made.begins() == "repeated until decided over batch_size=4,16, in 60runs"
    assert [job.overrides for job in made.block()] == [["model=m", "batch_size=4"], ["model=m", "batch_size=16"]]
    assert search().block() == []
    ran = run(made)
    assert {job.config.search.phase for job in ran} == {"decide"}
    assert made.answer().named == {"batch_size": 16}
    assert made.answer().decided
    with pytest.raises(ConfigError, match="decides among 2 to 4 settings"):
        search_of(Job(base, []), [], None, ["batch_size=4,8,16,32,64"], parsed, make, 0)


def test_a_sweep_is_not_repeated_beyond_a_budget_that_its_first_runs_show_to_be_too_small(tmp_path: Path) -> None:
    base = make([])
    base.sweep.until_decided, base.search.budget = True, "20s"
    made = search_of(Job(base, ["model=m"]), [], None, ["batch_size=4,16"], parsed, make, 0)
    assert made
    [job] = made.next_jobs()
    assert job.config.timeout_sec == 20.0, "no run is longer than the budget"
    log = journal.Journal(tmp_path / "journal.jsonl")
    for key, clock in (("init_start", 0.0), ("run_stop", 12.0)):
        log.append(journal.Record("event", int(1e12 + 1e3 * clock), clock, key))
    log.close()
    job.folder, job.result = tmp_path, result(job)
    assert made.next_jobs() == [], "another one of 12 s is more than 20 s"
    assert "Not decided" in made.words()


def lose(job: Job, kind: str = "signal:9") -> None:
    job.result = Result("killed", failure=Failure(kind, "lost"))


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
    assert words.startswith("The budget is spent: lost runs are not made again; give a larger search.budget with")
    assert "interrupted" not in words
    assert "1 runs of 1 runs" in words, "what it took counts"


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


def test_a_diverged_run_is_as_bad_as_one_that_failed() -> None:
    job = Job(make([]), [])
    job.config.search = SearchConfig("quickest", phase="explore", setting={"gpus": 1})
    job.result = Result("failed", metrics={"time/censored_sec": 1.0}, failure=Failure("nan", "loss is nan"))
    trial = trial_of(job, budget_of(job.config.search))
    assert (trial.state, trial.censored_at) == ("missed", None)


def test_where_every_run_fails_the_answer_says_why() -> None:
    made = search()
    for _ in range(60):
        for job in made.next_jobs():
            job.result = Result("failed", failure=Failure("oom", "CUDA out of memory"))
    assert made.words().startswith("Every run failed. The first: failed: oom")


def test_two_values_that_are_one_setting_are_run_once() -> None:
    def same(words: list[str]) -> RunConfig:
        return make([word.replace("gpus=2", "gpus=1") for word in words])

    made = SearchJobs(Job(make([]), []), (Axis("gpus", (1, 2)), Axis("batch_size", (8, 16))), same)
    run(made)
    hashes = [job.config.config_hash() for job in made.jobs]
    assert len(set(hashes)) == len(hashes)
    assert any("both are the same run" in why for why in made.why.values())


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
    stored = json.loads((ROOT / "tests/fixtures/gpt-before-llama.json").read_text())["config"]
    before = Job(stored_config.from_dict(RunConfig, stored), ["model=gpt", "gpus=0"])
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
        ([40], ["search"], "0 decided: 1 runs of 60 runs, starts included."),
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


def test_a_full_disk_ends_a_search_with_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = search()
    run(made, most=3)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sweep, "extend", full)
    num_jobs = len(made.jobs)
    assert made.next_jobs(tmp_path) == []
    assert len(made.jobs) == num_jobs, "no run is made that the folder does not know of"
    assert made.words().startswith("The search ended early: [Errno 28] No space left on device.")


def test_with_no_axis_but_the_gpus_batch_and_rate_are_searched_for_each_number_of_them() -> None:
    def with_interval(word: str) -> tuple[str, object, list[int]]:
        sweep = type("Interval", (), {"start": 0.0025, "end": 0.04, "tags": {"log"}})
        return ("model.optimizer.lr", sweep, []) if "interval" in word else parsed(word)

    base = Job(make([]), ["model=m"])
    made = search_of(base, [], None, ["gpus=1,2"], with_interval, make, 0)
    assert made
    assert base.config.search.axes == [
        "gpus=1,2", "batch_size=2,4,8,16", "model.optimizer.lr=tag(log,interval(0.0025,0.04))",
    ]  # fmt: skip
    tried = {job.config.search.setting["gpus"] for job in run(made, most=6)}
    assert tried == {1, 2}


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


def by_time_and_cost(objective: str = "time,cost") -> SearchJobs:
    """A search by both, in which a GPU has its price: so the quickest needs two, and the cheapest one."""

    def priced(words: list[str]) -> RunConfig:
        config = make(words)
        config.search.objective = objective
        config.instance.price_per_hour = 36.0 * config.num_gpus()
        return config

    base = Job(priced([]), ["model=m", "seed=1"])
    base.config.search.axes = ["gpus=1,2"]
    return SearchJobs(base, AXES, priced)


def run_priced(made: SearchJobs) -> None:
    while jobs := made.next_jobs():
        for job in jobs:
            job.result = result(job)
            price = (job.config.instance.price_per_hour or 0.0) / 3600
            metrics = job.result.metrics
            if "time/to_accuracy_sec" in metrics:
                metrics["cost/to_accuracy_usd"] = metrics["time/to_accuracy_sec"] * price
            else:
                metrics["cost/usd"] = metrics["time/censored_sec"] * price


def test_a_search_by_time_and_cost_says_both_wherever_it_says_one(tmp_path: Path) -> None:
    made = by_time_and_cost()
    assert "a search for the least time and the least cost over gpus=1,2" in made.begins()
    run_priced(made)
    quickest, cheapest = made.answers()
    assert quickest.named is not None
    assert cheapest.named is not None
    assert (quickest.named["gpus"], cheapest.named["gpus"]) == (2, 1)
    words = made.words()
    assert "Quickest: gpus=2 batch_size=16" in words
    assert "Cheapest: gpus=1 batch_size=16" in words
    assert "USD (" in words
    assert "times as cheap" in words
    assert "The front, which nothing decided beats in both: gpus=2" in words
    made.finish(tmp_path)
    written = json.loads((tmp_path / "search.json").read_text())
    assert written["asked"]["objective"] == "time,cost"
    answer = written["answer"]
    assert [answer["objective"], answer["second"]["objective"]] == ["time", "cost"]
    assert [answer["named"]["gpus"], answer["second"]["named"]["gpus"]] == [2, 1]
    assert [(point["setting"]["gpus"], sorted(point)) for point in answer["front"]] == [
        (2, ["cost", "setting", "time"]), (1, ["cost", "setting", "time"]),
    ]  # fmt: skip
    told = made.told()
    assert told["second"]["named"]["gpus"] == 1
    assert told["words"] == words == words_of(tmp_path)
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
