"""A search's jobs: made of proposals, capped, kept in the sweep's order, and gone on with after an interruption."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from conf.launch_options import ClusterConfig, SearchConfig
from conf.schema import ConfigError, RunConfig
from tests.support.composing import ROOT, composed
from tests.support.studied import Writer
from tests.tracking.jobs.search.made_searches import AXES, BEST, lose, make, result, run, search
from tracking.analysis.search import Answer, Axis
from tracking.jobs.plan import Job, exit_code, sweep
from tracking.jobs.search import SearchJobs, search_of, trace_file
from tracking.jobs.search.search_request import check_unchanged
from tracking.record import Failure, Result, journal, run_folder
from tracking.request import stored_config


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
    at_once = {(job.config.search.phase, job.config.num_gpus()): job.config.sweep.jobs_at_once for job in made.jobs}
    assert at_once == {("explore", 1): 2, ("explore", 2): 1, ("decide", 1): 1, ("decide", 2): 1}, "as the tag says"
    assert made.answer().named == search_alone().named


def on_slurm(exclusive: bool, jobs: Sequence[Job] = ()) -> SearchJobs:
    def on_nodes(words: list[str]) -> RunConfig:
        config = make(words)
        config.cluster = ClusterConfig("slurm", "slurm", exclusive=exclusive, jobs_at_once=5)
        return config

    base = Job(on_nodes([]), ["model=m", "seed=1"])
    base.config.search.axes = ["gpus=1,2"]
    return SearchJobs(base, AXES, on_nodes, jobs)


@pytest.mark.parametrize("exclusive", [True, False])
def test_on_slurm_several_explore_at_once_and_a_block_together_where_each_has_its_nodes_alone(exclusive: bool) -> None:
    """The queue ends its jobs in another order than they came in."""
    made, queue, most = on_slurm(exclusive), list[Job](), {"explore": 0, "decide": 0}
    while True:
        queue += made.next_jobs()
        if not queue:
            break
        [(phase, _)] = {(job.config.search.phase, job.config.search.block) for job in queue}  # one block at a time
        most[phase] = max(len(queue), most[phase])
        ends = queue.pop(len(made.jobs) % len(queue))
        ends.result = result(ends)
    assert most["explore"] == 5
    assert most["decide"] == 1 if not exclusive else most["decide"] > 1
    assert made.answer().named is not None


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


def search_alone() -> Answer:
    made = search()
    run(made)
    return made.answer()


def test_a_running_job_is_waited_for() -> None:
    made = search()
    [job] = made.next_jobs()
    assert made.next_jobs() == []
    job.result = result(job)
    assert made.next_jobs()


def test_a_resumed_sweep_knows_the_folders_of_the_runs_that_were_lost(tmp_path: Path) -> None:
    job = Job(make([]), [])
    folders = {job.config.config_hash(): [run_folder.create(tmp_path, name) for name in "abc"]}
    own = folders[job.config.config_hash()]
    run_folder.write_result(own[0], Result("killed", failure=Failure("signal:9", "lost")))
    run_folder.write_result(own[1], Result("finished"))
    sweep.find_results([job], folders)
    assert (job.folder, job.lost) == (own[1], [own[0], own[2]])


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
    with pytest.raises(ConfigError, match="is not a search"):
        search_of(Job(asked, []), [Job(make([]), [])], None, [], parsed, make, 0)


def test_an_axis_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="batch_size: is an axis twice"):
        search_of(Job(make([]), []), [], None, ["batch_size=4,8", "batch_size=16,32"], parsed, make, 0)


def test_where_nothing_can_be_run_the_first_reason_is_told() -> None:
    def refuse(words: list[str]) -> RunConfig:
        raise ConfigError("gpus=1: none is there")

    made = SearchJobs(Job(make([]), []), AXES, refuse)
    with pytest.raises(ConfigError, match="no setting can be run: gpus=1: none is there"):
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


def test_the_runs_of_an_earlier_search_over_the_same_axes_end_exploring_early(tmp_path: Path) -> None:
    earlier = search()
    num_alone = sum(job.config.search.phase == "explore" for job in run(earlier))
    (tmp_path / "earlier").mkdir()
    earlier.finish(tmp_path / "earlier")
    base = Job(make([]), ["model=m"])
    base.config.runs_dir, base.config.search.source = str(tmp_path), "earlier"
    made = SearchJobs(base, AXES, make)
    explored = [job for job in run(made) if job.config.search.phase == "explore"]
    assert len(explored) < 0.8 * num_alone
    named = made.answer().named
    assert named is not None
    assert {key: named[key] for key in BEST} == BEST


@pytest.mark.parametrize(
    ("axes", "objective", "there"),
    [
        (AXES, "time", True), ((Axis("gpus", (4, 8)), *AXES[1:]), "time", True), (AXES, "cost", False),
        (AXES[1:], "time", False), ((*AXES, Axis("precision", ("fp32", "bf16"))), "time", False),
    ],
)  # fmt: skip
def test_only_runs_over_the_same_axes_for_the_same_objective_say_how_settings_compare(
    tmp_path: Path, axes: tuple[Axis, ...], objective: str, there: bool
) -> None:
    earlier = search()
    ran = run(earlier, most=12)
    earlier.write(tmp_path)
    known = trace_file.runs_of(tmp_path, axes, objective)
    assert [trial.setting for trial in known] == ([job.config.search.setting for job in ran] if there else [])
    assert {trial.phase for trial in known} <= {"explore"}
    (tmp_path / "search.json").write_text('{"trials": [1], "asked": {"objective": "time"}}')
    with pytest.raises(ValueError, match="is not a search's trace"):
        trace_file.runs_of(tmp_path, AXES, "time")


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
