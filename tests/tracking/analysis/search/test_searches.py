"""Whole searches: what they propose, that they go on from their trials, and what they answer."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import product

import pytest

from conf.schema import ConfigError
from tests.tracking.analysis.search.searches import AXES, Setting, ended, noisy, searched, true_time
from tracking.analysis.search import Axis, Rules, SearchTrial, answer, propose
from tracking.analysis.search.deciding import by_objective, next_deciding

RULES = Rules(AXES)


@pytest.fixture(scope="module")
def trials() -> list[SearchTrial]:
    return searched(RULES, noisy(0.02, 1))


def test_a_search_names_a_setting_that_is_as_good_as_the_best(trials: list[SearchTrial]) -> None:
    outcome = answer(RULES, trials)
    best = min(
        true_time(dict(zip(("gpus", "batch_size", "lr"), values, strict=True)))
        for values in product(*(axis.choices for axis in AXES))
    )
    assert outcome.decided
    assert outcome.named is not None
    assert true_time(outcome.named) < 1.2 * best
    assert outcome.best_by_group is not None
    assert list(outcome.best_by_group) == [1, 2, 4]
    assert outcome.ratios is not None
    assert {1, 2} == outcome.ratios.keys()
    assert outcome.num_explored + outcome.num_decided == len(trials)
    assert outcome.explore_cost + outcome.decide_cost == pytest.approx(sum(trial.cost for trial in trials))


def test_a_search_goes_on_from_its_trials_as_it_would_have(trials: list[SearchTrial]) -> None:
    for place in range(0, len(trials), 7):
        told = [replace(trial, state="running", value=None, censored_at=None, cost=0.0) for trial in trials]
        assert propose(RULES, trials[:place]) == [told[place]]
    assert propose(RULES, trials) == []


def test_exploring_repeats_no_setting_with_the_same_seed(trials: list[SearchTrial]) -> None:
    explored = [(trial.key, trial.seed) for trial in trials if trial.phase == "explore"]
    assert len(explored) == len(set(explored))


def test_deciding_uses_fresh_seeds_in_whole_blocks_without_caps(trials: list[SearchTrial]) -> None:
    used = {trial.seed for trial in trials if trial.phase == "explore"}
    deciding = [trial for trial in trials if trial.phase == "decide"]
    assert not used & {trial.seed for trial in deciding}
    assert {trial.cap for trial in deciding} == {None}
    assert len({(trial.block, trial.seed) for trial in deciding}) == max(trial.block or 0 for trial in deciding) + 1


def test_a_search_starts_with_what_it_is_told_in_each_group_that_it_may_be_meant_for() -> None:
    good: Setting = {"batch_size": 8, "lr": 0.008}
    starts = ({**good, "gpus": 4}, {**good, "gpus": 8, "lr": 0.004}, {**good, "batch_size": 5})
    rules = replace(RULES, starts=starts, at_once=6)
    first = [(trial.setting["gpus"], trial.setting["lr"]) for trial in propose(rules, [])]
    assert first[:3] == [(1, 0.004), (2, 0.004), (4, 0.008)]
    assert (4, 0.004) in first
    alone = Rules(AXES[1:], starts=({**good, "gpus": 4},))
    assert propose(alone, [])[0].setting == good


def test_several_explore_at_once_and_one_decides_alone() -> None:
    rules = replace(RULES, at_once=4)
    first = propose(rules, [])
    assert len(first) == 4
    assert len({trial.key for trial in first}) == 4
    assert propose(rules, first) == []
    trials = searched(rules, noisy(0.02, 2))
    assert answer(rules, trials).decided
    deciding = [place for place, trial in enumerate(trials) if trial.phase == "decide"]
    assert len(propose(rules, trials[: deciding[1]])) == 1


def test_a_block_is_decided_together_where_each_run_has_nodes_of_its_own() -> None:
    apart, end = replace(RULES, at_once=4, apart=True), noisy(0.02, 2)
    trials = searched(apart, end)
    explored = [trial for trial in trials if trial.phase == "explore"]
    block = propose(apart, explored)
    assert len(block) > 2
    assert {(trial.phase, trial.block) for trial in block} == {("decide", 0)}
    assert len({trial.key for trial in block}) == len(block)
    assert propose(replace(apart, apart=False), explored) == block[:1]
    done = [*map(end, block[:-1])]
    assert propose(apart, [*explored, *done, block[-1]]) == [], "a block ends before the next one begins"
    assert propose(apart, [*explored, *done]) == block[-1:], "what is left of it"
    alone = searched(replace(apart, apart=False), end)
    assert answer(apart, trials) == answer(apart, alone)
    assert propose(replace(apart, budget=sum(trial.cost for trial in explored)), explored) == []


def test_the_first_block_of_what_is_only_decided_is_one_run_at_a_time_since_no_run_has_told_its_cost() -> None:
    settings: tuple[Setting, ...] = ({"gpus": 4, "lr": 0.1}, {"gpus": 1, "lr": 0.1})
    rules = Rules((), explore=False, finalists=settings, apart=True, budget=1000.0)
    first = propose(rules, [])
    assert len(first) == 1
    [second] = propose(rules, [ended(first[0], 50.0)])
    together = propose(rules, [ended(first[0], 50.0), ended(second, 60.0)])
    assert [trial.block for trial in together] == [1, 1]


@pytest.mark.parametrize(("num_gpus", "choices"), [(2, (1, 2)), (4, (1, 2, 4)), (8, (1, 8))])
def test_exploring_runs_divide_the_gpus_and_no_number_of_them_is_left_behind(
    num_gpus: int, choices: tuple[int, ...]
) -> None:
    """Each run lasts as long as it takes, so that runs end in another order than they began in."""
    rules = Rules((Axis("gpus", choices), *AXES[1:]), at_once=num_gpus, num_gpus=num_gpus)
    end, trials, now, until = noisy(0.02, 2), list[SearchTrial](), 0.0, dict[int, float]()
    together = []
    while len(trials) < 60:
        new = propose(rules, trials)
        if any(trial.phase == "decide" for trial in new):
            break
        until |= {len(trials) + place: now + end(trial).cost for place, trial in enumerate(new)}
        trials += new
        running = [trial for trial in trials if trial.state == "running"]
        assert sum(int(trial.setting["gpus"]) for trial in running) <= num_gpus
        together.append([int(trial.setting["gpus"]) for trial in running])
        counts = [sum(trial.setting["gpus"] == choice for trial in trials) for choice in choices]
        assert max(counts) - min(counts) <= num_gpus or len(trials) > 20, "until one of them is known"
        first = min(until, key=until.__getitem__)
        now = until.pop(first)
        trials[first] = end(trials[first])
    assert [1] * num_gpus in together, "one on each GPU"
    assert [num_gpus] in together, "and one on all of them"
    if len(choices) > 2:
        assert any(1 in widths and 2 in widths for widths in together), "runs of one and of two side by side"


def test_a_budget_in_runs_is_kept_also_by_runs_side_by_side() -> None:
    rules = replace(RULES, at_once=4, budget=3.0, run_cost=1.0)
    assert len(propose(rules, [])) == 3


def test_a_budget_is_kept_and_what_it_does_not_reach_is_said() -> None:
    rules = replace(RULES, budget=600.0)
    trials = searched(rules, noisy(0.02, 3))
    outcome = answer(rules, trials)
    assert sum(trial.cost for trial in trials) <= 700
    assert not outcome.decided
    assert outcome.named is None
    assert outcome.leading is not None
    assert outcome.why == "budget spent"


def explored(batch: int, value: float, seed: int = 1, start: float = 10.0) -> SearchTrial:
    setting = {"gpus": 4, "batch_size": batch, "lr": 0.008}
    return SearchTrial(setting, seed, "explore", state="reached", value=value, cost=value + start)


@pytest.mark.parametrize(("budget", "batches"), [(420.0, [8, 4, 16, 32]), (300.0, [8, 4]), (200.0, [8, 4])])
def test_the_budget_limits_the_finalists_so_that_deciding_reaches_its_first_look(
    budget: float, batches: list[int]
) -> None:
    rules = Rules((Axis("gpus", (4,)), *AXES[1:]), budget=budget)
    trials = [explored(8, 10.0, start=60.0), explored(8, 10.5, 2), explored(4, 11.0), explored(16, 11.5)]
    trials.append(explored(32, 12.0))
    assert [setting["batch_size"] for setting in by_objective(rules, trials)[0].finalists] == batches
    while new := next_deciding(rules, trials):
        trials += [ended(trial, 10.0 + float(trial.setting["batch_size"]) / 10) for trial in new]
    assert sum(trial.cost for trial in trials) <= budget
    assert (answer(rules, trials).looks > 0) == (budget > 200)
    assert answer(rules, trials).num_left_out == 4 - len(batches)
    again = by_objective(replace(rules, budget=2 * budget), trials)[0].finalists
    if budget > 200:  # Else there is one block only, and a larger budget brings the others back.
        assert [setting["batch_size"] for setting in again] == batches


@pytest.mark.parametrize(("budget", "num"), [(900.0, 1), (300.0, 1), (200.0, 0)])
def test_a_block_that_has_begun_is_completed_unless_it_exceeds_a_new_budget(budget: float, num: int) -> None:
    rules = Rules((Axis("gpus", (4,)), *AXES[1:]), budget=300.0)
    trials = [explored(8, 10.0, start=60.0), explored(8, 10.5, 2), explored(4, 11.0)]
    while sum(trial.block == 1 for trial in trials) < 1:
        [trial] = next_deciding(rules, trials)
        trials.append(ended(trial, 40.0))  # more than exploring had shown
    assert len(next_deciding(replace(rules, budget=budget), trials)) == num


def test_settings_that_all_miss_are_said_with_the_best_value() -> None:
    def missed(trial: SearchTrial) -> SearchTrial:
        return replace(trial, state="missed", censored_at=500.0, cost=510.0, metric=float(trial.setting["batch_size"]))

    trials = searched(RULES, missed)
    outcome = answer(RULES, trials)
    assert outcome.why == "all missed"
    assert outcome.looks == 0, "nothing was compared"
    assert outcome.named is None
    assert outcome.best_value_if_all_missed == max(trial.metric or 0 for trial in trials)


def test_settings_that_each_missed_once_in_exploring_are_decided_among() -> None:
    """Those with the fewest misses; one that never reached the target is not among them."""
    axis, ends = (
        Axis("batch_size", (8, 16, 32, 64)),
        {8: (10.0, None), 16: (12.0, None), 32: (9.0, None, None), 64: (None,)},
    )
    trials = [
        SearchTrial({"batch_size": batch}, seed, "explore", state="reached", value=value, cost=value)
        if value
        else SearchTrial({"batch_size": batch}, seed, "explore", state="missed", censored_at=30.0, cost=30.0)
        for batch, values in ends.items()
        for seed, value in enumerate(values)
    ]
    rules = Rules((axis,))
    outcome = answer(rules, trials)
    assert (outcome.looks, outcome.why, outcome.leading) == (0, "budget spent", {"batch_size": 8})
    while new := next_deciding(rules, trials):
        trials += [ended(trial, float(trial.setting["batch_size"]) + trial.seed / 100) for trial in new]
    outcome = answer(rules, trials)
    assert {trial.setting["batch_size"] for trial in trials if trial.phase == "decide"} == {8, 16}
    assert (outcome.why, outcome.named) == ("decided", {"batch_size": 8})


def test_a_search_whose_deciding_runs_all_miss_does_not_say_that_no_run_reached_the_target() -> None:
    def end(trial: SearchTrial) -> SearchTrial:
        missed = replace(trial, state="missed", censored_at=500.0, cost=510.0)
        return missed if trial.phase == "decide" else ended(trial, true_time(trial.setting))

    outcome = answer(RULES, searched(RULES, end))
    assert (outcome.why, outcome.looks, outcome.named) == ("missed in deciding", 3, None)
    assert outcome.leading is not None


def test_deciding_alone_tells_settings_of_a_sweep_apart() -> None:
    settings: tuple[Setting, ...] = ({"gpus": 4, "lr": 0.1}, {"gpus": 1, "lr": 0.1})
    rules = Rules((), explore=False, finalists=settings)

    def end(trial: SearchTrial) -> SearchTrial:
        return ended(trial, 100 / float(trial.setting["gpus"]) + trial.seed % 3)

    trials = searched(rules, end)
    assert {trial.phase for trial in trials} == {"decide"}
    outcome = answer(rules, trials)
    assert outcome.why == "decided"
    assert outcome.named == settings[0]
    assert outcome.alike == ()
    assert len(trials) == 6


@pytest.mark.parametrize("since", [0, 4])
def test_a_finalist_that_cannot_be_run_is_no_finalist_and_what_was_not_run_is_not_counted(since: int) -> None:
    """It is refused in its first block, or on another machine after a resume."""
    settings: tuple[Setting, ...] = ({"precision": "fp32"}, {"precision": "tf32"}, {"precision": "fp8"})
    rules = Rules((Axis("precision", ("fp32", "tf32", "fp8")),), explore=False, finalists=settings)

    def end(trial: SearchTrial) -> SearchTrial:
        if trial.setting["precision"] == "fp8" and (trial.block or 0) >= since:
            return replace(trial, state="failed", refused=True)
        return ended(trial, 10 + 0.1 * ((trial.seed * (1 + (trial.setting["precision"] == "tf32"))) % 3))

    trials = searched(rules, end)
    outcome = answer(rules, trials)
    assert sum(trial.refused for trial in trials) == 1
    assert outcome.num_decided == len(trials) - 1
    assert outcome.num_left_out == 0
    assert {"precision": "fp8"} not in (outcome.named, *outcome.alike, *outcome.compared)
    assert [figure.num_short for figure in outcome.figures] == [0] * (3 if since else 2)
    told = [replace(trial, block=None) if trial.refused else trial for trial in trials]  # as search.json holds it
    assert propose(rules, told) == []
    assert answer(rules, told) == outcome


def test_the_best_of_a_group_stays_the_one_that_was_kept_for_it() -> None:
    """It was the better one when its group was left with one; what its later runs take makes no other one better."""
    settings: tuple[Setting, ...] = (
        {"gpus": 4, "lr": 1},
        {"gpus": 4, "lr": 2},
        {"gpus": 1, "lr": 1},
        {"gpus": 1, "lr": 2},
    )
    rules = Rules((Axis("gpus", (1, 4)), Axis("lr", (1, 2))), explore=False, finalists=settings)

    def end(trial: SearchTrial) -> SearchTrial:
        slow = 100.0 + float(trial.setting["lr"]) + (5 if (trial.block or 0) > 2 else 0)
        fast = 20.0 + (trial.seed * float(trial.setting["lr"])) % 3
        return ended(trial, slow if trial.setting["gpus"] == 1 else fast)

    outcome = answer(rules, searched(rules, end))
    assert outcome.best_by_group is not None
    assert outcome.best_by_group[1].setting == settings[2]
    assert outcome.best_by_group[1].n == outcome.best_by_group[4].n == 8


def test_an_interval_is_searched_within_its_ends() -> None:
    rules = Rules((Axis("gpus", (1, 4)), Axis("batch_size", (8,)), Axis("lr", low=0.002, high=0.05, log=True)))
    trials = searched(rules, noisy(0.02, 4))
    rates = [float(trial.setting["lr"]) for trial in trials]
    assert 0.002 <= min(rates) < max(rates) <= 0.05
    assert answer(rules, trials).named is not None


@pytest.mark.parametrize(
    ("words", "axis"),
    [
        ("lr: the axis has no values", {"key": "lr"}),
        ("give the lower end first", {"key": "lr", "low": 2.0, "high": 1.0}),
        ("ends must be above 0", {"key": "lr", "low": 0.0, "high": 1.0, "log": True}),
        ("a value is given twice", {"key": "lr", "choices": (1, 1)}),
    ],
)
def test_an_axis_that_cannot_be_searched_is_refused(words: str, axis: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=words):
        Axis(**axis)  # type: ignore[arg-type]


def test_without_optuna_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r"pip install 'optuna"):
        searched(RULES, noisy(0.02, 1))


def test_no_interval_of_a_time_begins_below_0() -> None:
    rules = Rules((Axis("lr", (1, 2)),))
    outcome = answer(rules, searched(rules, noisy(2.5, 3, lambda setting: float(setting["lr"]))))
    lows = [figure.low for figure in outcome.figures if figure.low is not None]
    assert lows
    assert min(lows) == 0.0
