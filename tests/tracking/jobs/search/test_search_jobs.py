"""A search's jobs: made of proposals, capped, kept in the sweep's order, and gone on with after an interruption."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import launch
from conf.schema import ConfigError, RunConfig
from tests.tracking.jobs.search.made_searches import AXES, make, on_slurm, parsed, result, run, search
from tracking.analysis.search import Answer, Axis
from tracking.jobs.plan import Job, sweep
from tracking.jobs.search import SearchJobs, search_of
from tracking.record import journal


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


def test_an_axis_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="batch_size: is an axis twice"):
        search_of(Job(make([]), []), [], None, ["batch_size=4,8", "batch_size=16,32"], parsed, make, 0)


def test_a_value_beside_an_axis_of_the_same_option_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^\+batch_size=2: has no effect beside the axis in batch_size=4,8"):
        search_of(Job(make([]), ["+batch_size=2"]), [], None, ["batch_size=4,8"], parsed, make, 0)


@pytest.mark.parametrize("key", ["compile", "precision"])
def test_an_interval_of_what_is_no_number_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=f"^{key}=interval.*: {key} is not a number. Next: list the values"):
        search_of(Job(make([]), []), [], None, [f"{key}=interval(0,1)"], launch.parsed_axis, make, 0)


@pytest.mark.parametrize("ends", ["1.5,64", "8,1e3"])
def test_an_interval_of_a_whole_number_is_between_whole_numbers(ends: str) -> None:
    with pytest.raises(ConfigError, match=rf"^batch_size=interval\({ends}\): batch_size is a whole number.* Next"):
        search_of(Job(make([]), []), [], None, [f"batch_size=interval({ends})"], launch.parsed_axis, make, 0)


@pytest.mark.parametrize(
    ("given", "axes", "words"),
    [
        ([], ["batch_size=8,8"], "^batch_size=8,8: gives one setting, but .*search=quickest compares several"),
        (["batch_size=8", "model.optimizer.lr=0.1"], [], "batch size and learning rate are given.* Next: leave one"),
    ],
)
def test_a_search_without_two_settings_to_compare_is_refused(given: list[str], axes: list[str], words: str) -> None:
    def parsed_once(word: str) -> tuple[str, object, list[int]]:
        key, sweep, values = parsed(word)
        return key, sweep, list(dict.fromkeys(values))

    with pytest.raises(ConfigError, match=words):
        search_of(Job(make(given), given), [], None, axes, parsed_once, make, 0)


def test_a_setting_to_decide_among_that_cannot_be_run_is_refused_before_any_run() -> None:
    """Each of its values can, beside the defaults of the others."""

    def until_decided(words: list[str]) -> RunConfig:
        config = make(words)
        config.search.name, config.sweep.until_decided = "", True
        return config

    base = Job(until_decided([]), ["model=m"])
    with pytest.raises(ConfigError, match="batch_size=4: too small for two"):
        search_of(base, [], None, ["gpus=1,2", "batch_size=4,8"], parsed, until_decided, 0)
    made = search_of(base, [], None, ["gpus=1,2", "batch_size=8,16"], parsed, until_decided, 0)
    assert made
    assert len(made.block()) == len(made.corners()) == 4


def test_without_optuna_a_search_is_refused_and_a_sweep_until_decided_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    base = make([])
    with pytest.raises(ConfigError, match=r"search=quickest: needs Optuna. Next: pip install .*the extra search"):
        search_of(Job(base, []), [], None, ["batch_size=4,8"], parsed, make, 0)
    base.search.name, base.sweep.until_decided = "", True
    assert search_of(Job(base, []), [], None, ["batch_size=4,8"], parsed, make, 0)


def test_where_nothing_can_be_run_the_first_reason_is_told() -> None:
    def refuse(words: list[str]) -> RunConfig:
        raise ConfigError("gpus=1: none is there")

    made = SearchJobs(Job(make([]), []), AXES, refuse)
    with pytest.raises(ConfigError, match="no setting can be run: gpus=1: none is there"):
        made.next_jobs()


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
    for axes in (["batch_size=4,8,16,32,64"], ["batch_size=4"], []):
        words = " ".join(["sweep.until_decided=true", *axes])
        with pytest.raises(ConfigError, match=f"^{words}: decides among 2 to 4 settings. Next: give an axis"):
            search_of(Job(base, []), [], None, axes, parsed, make, 0)


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


def test_two_values_that_are_one_setting_are_run_once() -> None:
    def same(words: list[str]) -> RunConfig:
        return make([word.replace("gpus=2", "gpus=1") for word in words])

    made = SearchJobs(Job(make([]), []), (Axis("gpus", (1, 2)), Axis("batch_size", (8, 16))), same)
    run(made)
    hashes = [job.config.config_hash() for job in made.jobs]
    assert len(set(hashes)) == len(hashes)
    assert any("both are the same run" in why for why in made.why.values())


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


@pytest.mark.parametrize(
    ("budget", "seconds"), [("90s", 90.0), ("1gpu-hours", 3600.0), ("2usd", 200.0), ("9runs", None)]
)
def test_a_run_of_which_nothing_is_known_is_limited_by_the_whole_budget(budget: str, seconds: float | None) -> None:
    """A machine is paid for by the hour, so a budget of dollars is one of time, too."""
    base = Job(make([]), ["model=m"])  # on one GPU, for 36 USD an hour
    base.config.search.budget = budget
    [job] = SearchJobs(base, AXES[1:], make).next_jobs()
    assert job.config.timeout_sec == (None if seconds is None else pytest.approx(seconds))


def test_all_settings_are_evaluated_after_equally_many_samples() -> None:
    """A setting of larger steps would else be evaluated seldom, and seem slower than it is."""

    def by_steps(words: list[str]) -> RunConfig:
        config = make(words)
        config.model.eval_every_steps = 20
        return config

    base = Job(by_steps(["batch_size=8"]), ["model=m"])
    base.config.search.budget = "9runs"
    made = search_of(base, [], None, ["batch_size=4,16"], parsed, by_steps, 0)
    assert made
    assert "eval_every_samples=160" in made.next_jobs()[0].overrides
    plain = search_of(base, [], None, ["model.optimizer.lr=1,2"], parsed, by_steps, 0)
    assert plain
    assert "eval_every_samples" not in " ".join(plain.next_jobs()[0].overrides)
    base = Job(by_steps(["batch_size=8"]), ["model=m", "eval_every_steps=20"])
    with pytest.raises(ConfigError, match=r"eval_every_steps=20: .* Next: give eval_every_samples=8 times the number"):
        search_of(base, [], None, ["batch_size=4,16"], parsed, by_steps, 0)


def test_runs_that_the_search_stopped_are_settled_but_not_finished(tmp_path: Path) -> None:
    jobs = run(search(), most=12)
    num_stopped = sum(not job.finished for job in jobs)
    assert 0 < num_stopped < 12
    assert all(job.settled for job in jobs)
    sweep.prepare(tmp_path, jobs, [], "sqlite:///none.db")
    ended = sweep.finish(tmp_path, jobs)
    assert (ended.status, ended.metrics["num_finished"]) == ("finished", 12 - num_stopped)
