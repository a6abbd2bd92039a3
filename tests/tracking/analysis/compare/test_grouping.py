"""How runs end, and which of them a figure of their setting is of."""

from __future__ import annotations

import pytest

from tracking.analysis.compare.censoring import censored_at, stopped_words
from tracking.analysis.compare.grouping import Setting, why_excluded
from tracking.analysis.results import End, Run
from tracking.analysis.statistics import Times

TIME, RATE, BEST = "time/to_accuracy_sec", "throughput/samples_per_sec", "eval/best_accuracy"


def run(failure: str = "", tags: dict[str, str] | None = None, **metrics: float) -> Run:
    """A run with a target; `run.missed` gives MISSED, and so on."""
    named = {key.replace("__", "/"): value for key, value in metrics.items()}
    said = (tags or {}) | ({"failure": failure} if failure else {})
    name = f"run{id(named)}"
    return Run(name, name, "e", "FAILED" if failure else "FINISHED", 0, 1, {"target_metric": "accuracy"}, said, named)


def setting(*runs: Run, with_missed: bool = False) -> Setting:
    return Setting.of({}, runs, [run for run in runs if why_excluded(run, with_missed) is None])


def reached(sec: float, **metrics: float) -> Run:
    return run(target_reached=1.0, time__to_accuracy_sec=sec, **metrics)


def missed(sec: float, **metrics: float) -> Run:
    return run(target_reached=0.0, time__censored_sec=sec, **metrics)


@pytest.mark.parametrize(
    ("failure", "end"),
    [
        ("nan", End.DIVERGED),
        ("timeout", End.STOPPED),
        ("preempted", End.STOPPED),
        ("cancelled", End.STOPPED),
        ("search", End.STOPPED),
        ("signal:2", End.STOPPED),
        ("signal:15", End.STOPPED),
        ("signal:9", End.FAILED),
        ("signal:11", End.FAILED),
        ("oom", End.FAILED),
        ("node_fail", End.FAILED),
        ("error", End.FAILED),
    ],
)
def test_a_failure_is_a_divergence_a_stop_from_outside_or_a_failure(failure: str, end: End) -> None:
    assert run(failure).end is end


def test_a_run_that_trained_to_its_end_reached_its_target_or_missed_it() -> None:
    assert reached(9.0).end is End.REACHED
    assert missed(9.0).end is End.MISSED
    assert run().end is End.TRAINED
    assert Run("id", "run", "e", "RUNNING", 0, None).end is End.RUNNING
    assert Run("id", "run", "e", "KILLED", 0, 1).end is End.FAILED  # nothing says by what


def test_a_miss_is_a_spent_budget_or_a_divergence_and_no_stop() -> None:
    """Also where a run was stopped long before the budget of the others."""
    all_kinds = setting(
        reached(10.0), reached(12.0), missed(60.0), run("nan", time__censored_sec=3.0),
        run("timeout", time__censored_sec=5.0), run("preempted"), run("oom"), run("signal:9"),
    )  # fmt: skip
    assert all_kinds.reached is not None
    assert (all_kinds.reached.reached, all_kinds.reached.n) == (2, 4)
    assert all_kinds.measured(TIME) == Times([10.0, 12.0], [60.0], [5.0], 1)
    assert stopped_words(all_kinds.stopped) == "1 stopped by a time limit at 5 s, 1 stopped by a preemption"
    assert len(all_kinds.runs_of(TIME)) == 6
    assert stopped_words([run("timeout", time__censored_sec=sec) for sec in (119.96, 120.2, 118.0)]) == (
        "3 stopped by a time limit at 118 to 120.2 s"
    )


def test_a_run_of_no_target_or_of_no_count_misses_nothing() -> None:
    resumed = run(tags={"resumed": "1"}, target_reached=0.0)
    warm_up = run(tags={"timetrial.uncounted": "warm-up"}, target_reached=0.0)
    without = Run("id", "run", "e", "FAILED", 0, 1, {}, {"failure": "nan"})
    kinds = setting(resumed, warm_up, without, run("timeout", tags={"resumed": "1"}))
    assert (kinds.missed, kinds.diverged, kinds.stopped, kinds.reached) == ([], [], [], None)
    assert len(setting(run("nan", tags={"resumed": "1"})).diverged) == 1


@pytest.mark.parametrize("with_missed", [False, True])
def test_a_figure_that_is_not_to_accuracy_is_of_all_runs_that_trained_to_their_end(with_missed: bool) -> None:
    runs = [reached(9.0, throughput__samples_per_sec=100.0, eval__best_accuracy=0.95)]
    runs += [missed(30.0, throughput__samples_per_sec=90.0, eval__best_accuracy=0.5)]
    runs += [run("timeout", throughput__samples_per_sec=1.0), run("oom", eval__best_accuracy=1.0)]
    both = setting(*runs, with_missed=with_missed)
    for key, values in ((RATE, [100.0, 90.0]), (BEST, [0.95, 0.5])):
        assert both.measured(key).reached == both.values(key) == values
        assert both.runs_of(key) == runs[:2]
    assert both.measured(TIME).missed == [30.0]
    assert both.runs_of(TIME) == runs[:3]


def test_by_when_a_run_had_not_reached_its_target_is_read_off_its_metrics_also_of_older_ones() -> None:
    older = {"time/train_sec": 20.0, "time/eval_sec": 4.0, "epoch": 2.0, "cost/usd": 0.1, "energy/joules": 900.0}
    assert censored_at(TIME, older) == 24.0
    assert censored_at(TIME, older | {"time/censored_sec": 25.0}) == 25.0
    assert censored_at("time/to_accuracy_train_sec", older) == 20.0
    assert censored_at("epochs/to_accuracy", older) == 2.0
    assert censored_at("evaluations/to_accuracy", older | {"evaluations/censored": 4.0}) == 4.0
    assert censored_at("cost/to_accuracy_usd", older) == 0.1
    assert censored_at("energy/to_accuracy_joules", older) == 900.0
    assert censored_at(TIME, {"train/loss": 1.0}) is None


def test_a_miss_at_a_time_that_nobody_knows_counts_from_nought() -> None:
    assert setting(reached(50.0), run(target_reached=0.0)).measured(TIME).missed == [0.0]
    assert setting(run(target_reached=0.0)).measured("cost/to_accuracy_usd").n == 0  # it has no price at all


def test_of_a_stop_at_a_time_that_nobody_knows_nothing_is_known() -> None:
    """As of a timeout of an older version: it is named, and in no figure."""
    lost = setting(reached(50.0), run("timeout"))
    assert lost.measured(TIME) == Times([50.0], [], [])
    assert stopped_words(lost.stopped) == "1 stopped by a time limit"


def test_the_interval_of_a_figure_is_that_of_the_evaluations_on_which_it_can_fall() -> None:
    """In its own unit, as a mean over the runs that reached their target; of what is measured it is 0."""
    said = {"time__evaluation_interval_sec": 2.5, "cost__to_accuracy_usd": 0.4, "epochs__to_accuracy": 4.0}
    both = setting(
        reached(10.0, time__to_accuracy_train_sec=8.0, evaluations__to_accuracy=4.0, **said),
        reached(20.0, time__to_accuracy_train_sec=12.0, evaluations__to_accuracy=8.0, **said),
        missed(60.0, time__evaluation_interval_sec=9.0),
    )
    widths = {TIME: 2.5, "time/to_accuracy_train_sec": (2.0 + 1.5) / 2, "cost/to_accuracy_usd": (0.1 + 0.05) / 2}
    widths |= {"epochs/to_accuracy": (1.0 + 0.5) / 2, "evaluations/to_accuracy": 1.0, RATE: 0.0}
    assert {key: both.measured(key).interval for key in widths} == pytest.approx(widths)


def test_a_figure_of_the_whole_run_falls_on_evaluations_if_the_target_ended_the_run() -> None:
    said = {"time__evaluation_interval_sec": 2.5, "epochs__to_accuracy": 4.0, "cost__usd": 0.4}
    ended, trained_on = (reached(10.0, epochs__trained=epochs, **said) for epochs in (4.0, 9.0))
    assert setting(ended).measured("cost/usd").interval == pytest.approx(0.1)
    assert setting(trained_on).measured("cost/usd").interval == 0.0


def test_the_interval_of_a_run_of_an_older_version_is_an_epoch() -> None:
    old = setting(reached(10.0, epochs__to_accuracy=4.0), reached(9.0, epochs__to_accuracy=2.5), reached(7.0))
    assert old.measured(TIME).interval == pytest.approx((2.5 + 3.0) / 2)
    assert setting(reached(7.0)).measured(TIME).interval == 0.0
