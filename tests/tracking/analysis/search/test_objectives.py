"""A search by two objectives: it explores for the front, and names the best by each."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tracking.analysis.search.searches import AXES, START, Setting, searched, true_time
from tracking.analysis.search import Axis, Rules, SearchTrial, Second, answers, front, propose
from tracking.analysis.search.deciding import next_deciding
from tracking.analysis.search.group import Group
from tracking.analysis.search.new_settings import proposals, unknown_neighbours
from tracking.analysis.search.objectives import views

RULES = Rules(AXES, num_objectives=2)


def true_cost(setting: Setting) -> float:
    """A GPU's price for the time: least on one GPU, at another batch and rate than the least time."""
    return true_time(setting) * float(setting["gpus"]) / 100


def least(value: object) -> dict[str, object]:
    settings = [
        {"gpus": g, "batch_size": b, "lr": r} for g in (1, 2, 4) for b in AXES[1].choices for r in AXES[2].choices
    ]
    return min(settings, key=value)  # type: ignore[arg-type]


def end(trial: SearchTrial, noise: float, seed: int) -> SearchTrial:
    """The run with its noise; stopped where it is beyond both caps, as cap_sec has it."""
    factor = math.exp(random.Random(f"{seed} {trial.key} {trial.seed}").gauss(0, noise))
    time, price = true_time(trial.setting) * factor, float(trial.setting["gpus"]) / 100
    assert trial.second or trial.cap is None
    caps = [trial.cap, trial.second.cap / price] if trial.cap and trial.second and trial.second.cap else []
    if caps and time > max(caps):
        stopped = Second(censored_at=max(caps) * price)
        return replace(trial, state="stopped", censored_at=max(caps), cost=max(caps) + START, second=stopped)
    return replace(trial, state="reached", value=time, cost=time + START, second=Second(value=time * price))


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 1000), noise=st.sampled_from((0.0, 0.02, 0.05)), at_once=st.integers(1, 3))
def test_it_names_the_best_by_each_objective_with_seeds_of_their_own(seed: int, noise: float, at_once: int) -> None:
    rules = replace(RULES, seed=seed, at_once=at_once)
    trials = searched(rules, lambda trial: end(trial, noise, seed))
    quickest, cheapest = answers(rules, trials)
    assert quickest.named is not None
    assert cheapest.named is not None
    assert true_time(quickest.named) <= (1 + 2 * noise + 1e-9) * true_time(least(true_time))  # type: ignore[arg-type]
    assert true_cost(cheapest.named) <= (1 + 2 * noise + 1e-9) * true_cost(least(true_cost))  # type: ignore[arg-type]
    assert (quickest.named["gpus"], cheapest.named["gpus"]) == (4, 1)
    explored = {trial.seed for trial in trials if trial.phase == "explore"}
    decided = [trial for trial in trials if trial.phase == "decide"]
    assert not explored & {trial.seed for trial in decided}
    assert all(later.seed >= earlier.seed for earlier, later in pairwise(decided))
    assert len({(trial.key, trial.block) for trial in decided}) == len(decided), "a run counts for both"


def test_the_budget_limits_the_finalists_of_both_objectives_together() -> None:
    """Four settings are close by time, and four others by cost; the budget allows three blocks of four settings."""
    rules = Rules((Axis("lr", tuple(range(1, 9))),), num_objectives=2, budget=420.0)
    trials = []
    for lr in range(1, 9):
        time, cost = (10.0 + lr / 100, 99.0) if lr < 5 else (99.0, 1 + lr / 1000)
        second = Second(value=cost)
        trials.append(SearchTrial({"lr": lr}, 1, "explore", state="reached", value=time, cost=20.0, second=second))
    while new := next_deciding(rules, trials):
        values = {trial.setting["lr"]: trial for trial in trials[:8]}
        trials += [
            replace(values[trial.setting["lr"]], seed=trial.seed, phase="decide", block=trial.block) for trial in new
        ]
    assert {trial.setting["lr"] for trial in trials if trial.block is not None} == {1, 2, 5, 6}
    assert [answer.looks for answer in answers(rules, trials)] == [1, 1]


def test_a_setting_is_run_only_while_an_objective_may_choose_it() -> None:
    rules = Rules(
        (Axis("lr", (1, 2, 3)),), explore=False, num_objectives=2, finalists=tuple({"lr": n} for n in (1, 2, 3))
    )

    def values(trial: SearchTrial) -> SearchTrial:
        """The first is best in time; of the two others, whose costs are the least, none is told to be the best."""
        lr, luck = int(trial.setting["lr"]), random.Random(f"{trial.key} {trial.seed}").gauss(1, 0.01)
        time, cost = (10.0, 20.0, 20.0)[lr - 1], (3.0, 1.0, 1.0)[lr - 1]
        return replace(trial, state="reached", value=time * luck, second=Second(value=cost * luck))

    trials = searched(rules, values)
    blocks = {lr: [trial.block for trial in trials if trial.setting == {"lr": lr}] for lr in (1, 2, 3)}
    assert blocks == {1: [0, 1, 2], 2: list(range(8)), 3: list(range(8))}
    quickest, cheapest = answers(rules, trials)
    assert (quickest.named, quickest.why) == ({"lr": 1}, "decided")
    assert cheapest.why == "not told apart"
    assert {figure.n for figure in quickest.figures if figure.setting == {"lr": 1}} == {3}


def test_two_objectives_share_the_error() -> None:
    assert [rules.alpha for rules, _ in views(RULES, [])] == pytest.approx([0.025, 0.025])
    assert [rules.alpha for rules, _ in views(Rules(AXES), [])] == [0.05]


@pytest.mark.exhaustive
def test_neither_is_wrong_more_often_than_one_alone_would_be() -> None:
    """Three settings that are equal in time and in cost: in 5 % of searches one is called the best of either."""
    rules = Rules(
        (Axis("n", (1, 2, 3)),), explore=False, num_objectives=2, finalists=tuple({"n": n} for n in (1, 2, 3))
    )
    wrong = 0
    for search in range(200):

        def values(trial: SearchTrial, search: int = search) -> SearchTrial:
            draw = random.Random(f"{search} {trial.key} {trial.seed}")
            first, second = (math.exp(draw.gauss(0, 0.1)) for _ in range(2))
            return replace(trial, state="reached", value=first, second=Second(value=second))

        wrong += any(own.why == "decided" for own in answers(rules, searched(rules, values)))
    assert wrong / 200 < 0.05 + 2 * math.sqrt(0.05 * 0.95 / 200)


def run(lr: float, first: float | None, second: float | None, beyond: float | None = None) -> SearchTrial:
    state = "reached" if first is not None else "stopped"
    return SearchTrial(
        {"lr": lr}, 1, "explore", state=state, value=first, censored_at=beyond, second=Second(None, second, beyond)
    )


def test_the_neighbours_of_all_settings_on_the_front_are_tried() -> None:
    rules = Rules((Axis("lr", (1, 2, 3, 4, 5, 6, 7, 8, 9)),), num_objectives=2)
    trials = [run(2, 1.0, 9.0), run(5, 3.0, 3.0), run(8, 9.0, 1.0), run(6, 4.0, 4.0)]
    group = Group(rules, None, trials)
    assert [dict(key) for key in group.front] == [{"lr": 2}, {"lr": 5}, {"lr": 8}]
    assert {setting["lr"] for setting in unknown_neighbours(group)} == {1, 3, 4, 7, 9}
    by_time = Group(replace(rules, num_objectives=1), None, trials)
    assert {setting["lr"] for setting in unknown_neighbours(by_time)} == {1, 3}


def test_proposals_by_two_objectives_avoid_a_region_whose_runs_were_all_stopped() -> None:
    """Above 0.01 every run was stopped; the least time is at 0.002 and the least cost at 0.008."""
    axes = (Axis("lr", low=0.001, high=0.1, log=True),)
    rates = (0.001, 0.002, 0.004, 0.006, 0.008)
    points = [({"lr": rate}, [10 + abs(math.log(rate / best)) for best in (0.002, 0.008)]) for rate in rates]
    stopped = [({"lr": rate}, [20.0, 20.0]) for rate in (0.012, 0.02, 0.03, 0.05, 0.09)]
    proposed = [float(p["lr"]) for seed in range(10) for p in proposals(axes, [*points, *stopped], seed, 3)]
    assert max(proposed) < 0.02


def test_a_stopped_run_counts_as_the_expected_one_by_both_objectives() -> None:
    trials = [run(1, 10.0, 1.0), run(2, 12.0, 1.2), run(3, None, None, beyond=20.0)]
    [first], [second] = [
        [each.expected for each in view.settings][2:] for view in Group(RULES_OF_LR, None, trials).views
    ]
    assert first > 20
    assert second > 20


RULES_OF_LR = Rules((Axis("lr", (1, 2, 3)),), num_objectives=2)


def test_a_search_goes_on_from_its_trials_alone() -> None:
    whole = searched(RULES, lambda trial: end(trial, 0.02, 3))
    for place in (0, 7, 30, len(whole) - 1):
        assert propose(RULES, whole[:place])[0].setting == whole[place].setting


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_no_point_of_the_front_is_beaten_in_both_and_each_other_one_is(points: list[tuple[int, int]]) -> None:
    chosen = front(points, lambda point: point)

    def beats(winner: tuple[int, int], other: tuple[int, int]) -> bool:
        return winner != other and winner[0] <= other[0] and winner[1] <= other[1]

    assert not any(beats(point, other) for point in points for other in chosen)
    assert all(point in chosen or any(beats(other, point) for other in chosen) for point in points)
    assert front(points, lambda point: point[:1]) == sorted(points, key=lambda point: point[0])[:1]
