"""The parts of a search: caps, expected times, levels, neighbours, and the test of two settings in blocks."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tracking.analysis.search.searches import AXES, ended, noisy, searched
from tracking.analysis.search import Answer, Axis, Rules, SearchTrial, answer, cap_of
from tracking.analysis.search.blocks import Blocks, survivors
from tracking.analysis.search.costs import grid_cost
from tracking.analysis.search.deciding import levels
from tracking.analysis.search.explored import expectations, expected_beyond, mean_beyond, noise
from tracking.analysis.search.finalists import finalists
from tracking.analysis.search.neighbours import neighbours
from tracking.analysis.search.new_settings import proposals
from tracking.analysis.search.trials import Key

RULES = Rules(AXES)
RATE = (Axis("lr", low=0.001, high=0.1, log=True),)


def run(
    lr: float, seed: int = 1, value: float | None = None, beyond: float | None = None, **more: object
) -> SearchTrial:
    """An exploring run of a learning rate, which reached its target, or was stopped or missed at `beyond`."""
    state = "reached" if value is not None else "stopped"
    given_more = {"state": state, "value": value, "censored_at": beyond, **more}
    return SearchTrial({"lr": lr}, seed, "explore", **given_more)  # type: ignore[arg-type]


def test_the_mean_beyond_a_bound_is_that_of_a_truncated_log_normal() -> None:
    # exp(1/2) Phi(1 - 0) / Phi(0) for X > 1, location 0, spread 1
    assert mean_beyond(np.array([1.0]), 0.0, 1.0) == pytest.approx([2.7743], abs=1e-4)
    draws = np.exp(np.random.default_rng(1).normal(3.0, 0.4, 1_000_000))
    assert mean_beyond(np.array([25.0]), 3.0, 0.4) == pytest.approx([draws[draws > 25].mean()], rel=1e-3)


@given(st.floats(0.1, 1e6), st.floats(-5, 10), st.floats(0.1, 1))
def test_the_mean_beyond_a_bound_is_beyond_it_however_far(bound: float, location: float, spread: float) -> None:
    [mean] = mean_beyond(np.array([bound]), location, spread)
    assert bound <= mean < math.inf


def test_runs_that_were_stopped_count_for_more_than_their_cap() -> None:
    expected, usual = expected_beyond((10.0, 12.0, 15.0), (20.0, 30.0))
    assert expected[0] > 20
    assert expected[1] > 30
    assert 10 < usual < expected[0]


def test_a_run_that_is_running_counts_as_the_expected_one_and_a_failed_one_as_the_worst() -> None:
    trials = [run(0.1, value=10.0), run(0.2, value=14.0), run(0.3, state="running"), run(0.4, state="failed")]
    values = expectations(trials)
    assert values[:2] == [10.0, 14.0]
    assert 10 < values[2] < 14 * 1.2
    assert values[3] == 28.0


def test_the_noise_is_pooled_over_settings_with_a_repeat() -> None:
    assert noise([]) == pytest.approx(0.1)
    trials = [run(0.1, 1, 10.0), run(0.1, 2, 11.0), run(0.2, 1, 20.0), run(0.2, 2, 20.0)]
    assert noise(trials) == pytest.approx(math.sqrt((0.01 + math.log(1.1) ** 2 / 2) / 3))


def test_a_cap_is_three_deviations_or_an_interval_above_the_best_mean() -> None:
    rules = Rules(RATE)
    assert cap_of(rules, []) is None
    assert cap_of(rules, [run(0.1, beyond=9.0)]) is None  # nothing was reached
    trials = [run(0.1, 1, 10.0), run(0.1, 2, 12.0), run(0.2, 1, 30.0)]
    spread = math.sqrt((0.01 + math.log(1.2) ** 2 / 2) / 2)
    assert cap_of(rules, trials) == pytest.approx(11 * (1 + 3 * spread))
    wide = [run(0.1, 1, 10.0, interval=5.0)]
    assert cap_of(rules, wide) == pytest.approx(15.0)


def test_a_group_has_a_cap_of_its_own() -> None:
    trials = [
        SearchTrial({"gpus": gpus, "batch_size": 8, "lr": 0.008}, 1, "explore", state="reached", value=value)
        for gpus, value in ((1, 100.0), (4, 30.0))
    ]
    assert cap_of(RULES, trials, {"gpus": 1}) == pytest.approx(130.0)
    assert cap_of(RULES, trials, {"gpus": 2}) is None
    assert cap_of(RULES, trials) == pytest.approx(39.0)


def test_a_look_spends_what_the_blocks_since_the_last_are_of_all() -> None:
    assert levels((3, 5, 8), 0.05) == pytest.approx([0.01875, 0.0125, 0.01875])
    assert levels((4,), 0.05) == [0.05]


def test_neighbours_are_a_step_away_along_one_axis_and_then_along_two() -> None:
    axes = (Axis("batch_size", (32, 8, 16)), Axis("precision", ("bf16", "fp32")))
    around = [tuple(setting.values()) for setting in neighbours(axes, {"batch_size": 8, "precision": "bf16"})]
    assert around == [(16, "bf16"), (8, "fp32"), (16, "fp32")]
    ends = [setting["lr"] for setting in neighbours(RATE, {"lr": 0.01})]
    assert ends == [0.00631, 0.0158]  # 0.01 x 100^-0.1 and 100^0.1, at three digits


def test_neighbours_on_an_interval_of_integers_are_integers_in_it() -> None:
    few = (Axis("n", low=1, high=4, integer=True),)
    assert [[setting["n"] for setting in neighbours(few, {"n": value})] for value in (1, 2, 4)] == [[2], [1, 3], [3]]


def test_a_region_whose_runs_were_all_stopped_is_not_proposed_again() -> None:
    """Above 0.01 every run is stopped. A study that is told nothing of them proposes there."""
    reached = [run(rate, value=10 + abs(math.log10(rate / 0.005))) for rate in (0.001, 0.002, 0.004, 0.006, 0.008)]
    stopped = [run(rate, beyond=14.0) for rate in (0.012, 0.02, 0.03, 0.05, 0.09)]

    def proposed(trials: Sequence[SearchTrial]) -> list[float]:
        points = [(trial.setting, [value]) for trial, value in zip(trials, expectations(trials), strict=True)]
        return [float(point["lr"]) for seed in range(10) for point in proposals(RATE, points, seed, 3)]

    assert max(proposed([*reached, *stopped])) < 0.02  # at most a step into it
    assert sum(rate > 0.02 for rate in proposed(reached)) >= 3


def table(rows: Sequence[Sequence[float | None]], interval: float = 0.0) -> tuple[Blocks, list[Key]]:
    runs = {}
    for place, row in enumerate(rows):
        trials = [
            SearchTrial({"lr": place}, block, "decide", block, None, "reached" if value else "missed", value,
                  None if value else 99.0, interval)
            for block, value in enumerate(row)
        ]  # fmt: skip
        runs[trials[0].key] = trials
    return Blocks(runs, len(rows[0])), list(runs)


def test_two_settings_are_compared_within_blocks() -> None:
    blocks, (first, second) = table([[10.0, 20.0, 40.0], [11.0, 22.5, 44.0]])
    assert blocks.p(first, second) < 0.01
    assert blocks.p(second, first) > 0.99
    assert blocks.at_most(first, second, 0.05) < 1 < blocks.at_most(second, first, 0.05)


def test_times_that_come_in_whole_intervals_tell_no_more_than_these() -> None:
    rows = [[10.0, 10.0, 10.0], [11.0, 11.0, 11.0]]
    blocks, (first, second) = table(rows)
    assert blocks.p(first, second) < 1e-6
    blocks, (first, second) = table(rows, interval=1.0)
    assert blocks.p(first, second) > 0.05


def test_a_setting_that_misses_is_not_named_over_one_that_never_does() -> None:
    blocks, keys = table([[8.0, 8.1, None], [10.0, 10.1, 10.2]])
    assert min(keys, key=blocks.order) == keys[1]
    assert survivors(blocks, keys, 0.05) == keys


def test_equal_settings_lose_the_best_no_more_often_than_the_level() -> None:
    """Four equal settings, three looks: one of them is called the only best, or any is lost, in 5 % of cases."""
    draw = random.Random(1)
    lost = 0
    for _ in range(400):
        rows = [[math.exp(draw.gauss(0, 0.05)) for _ in range(8)] for _ in range(4)]
        blocks, keys = table(rows)
        left = keys
        for look, level in zip((3, 5, 8), levels((3, 5, 8), 0.05), strict=True):
            part = Blocks({key: blocks.runs[key][:look] for key in left}, look)
            left = survivors(part, left, level)
        lost += keys[0] not in left
    assert lost / 400 < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)


@pytest.mark.parametrize("true", [(10.0, 10.0, 10.0, 10.0), (10.0, 10.2, 10.4, 10.6), (10.0, 20.0)])
def test_a_mean_that_was_chosen_as_the_lowest_is_put_right_on_average(true: tuple[float, ...]) -> None:
    draw = random.Random(2)
    raw, corrected = [], []
    for _ in range(1000):
        blocks, keys = table([[mean * math.exp(draw.gauss(0, 0.1)) for _ in range(5)] for mean in true])
        chosen = min(keys, key=blocks.order)
        error = math.log(blocks.order(chosen)[1] / true[keys.index(chosen)]) - 0.1**2 / 2
        raw.append(error)
        corrected.append(error + blocks.optimism(chosen))
    assert abs(np.mean(corrected)) < 0.007
    assert (abs(np.mean(raw)) > 0.03) == (len(true) == 4)
    assert np.std(corrected) ** 2 + np.mean(corrected) ** 2 < 1.02 * (np.std(raw) ** 2 + np.mean(raw) ** 2)


def test_nothing_is_put_right_where_nothing_was_chosen_or_a_run_missed() -> None:
    alone, keys = table([[1.0, 2.0, 3.0]])
    assert alone.optimism(keys[0]) == 0
    two, keys = table([[1.0, 2.0, 3.0], [2.0, 2.0, 2.0]])
    assert two.optimism(keys[0]) > 0
    two.runs[keys[0]][1] = replace(two.runs[keys[0]][1], value=None, state="missed", censored_at=9.0)
    again = Blocks(two.runs, two.num)
    assert [again.optimism(key) for key in keys] == [0, 0]


def test_finalists_are_those_near_the_best_and_the_best_of_each_group() -> None:
    trials = [
        SearchTrial(
            {"gpus": gpus, "batch_size": batch, "lr": 0.008}, 1, "explore", state="reached", value=value, cost=1.0
        )
        for gpus, batch, value in ((1, 4, 100.0), (1, 8, 90.0), (2, 8, 50.0), (4, 4, 31.0), (4, 8, 30.0), (4, 16, 60.0))
    ]
    batches = [(setting["gpus"], setting["batch_size"]) for setting in finalists(RULES, trials)]
    assert batches == [(4, 8), (4, 4), (2, 8), (1, 8)]
    assert grid_cost(RULES, trials) == pytest.approx(180.0)
    failed = SearchTrial({"gpus": 4, "batch_size": 32, "lr": 0.008}, 1, "explore", state="failed")
    assert grid_cost(RULES, [*trials, failed]) == pytest.approx(180.0)
    assert grid_cost(RULES, [failed]) is None


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 1000), noise=st.sampled_from((0.0, 0.02, 0.15)), at_once=st.integers(1, 4))
def test_every_search_ends_and_explores_no_setting_twice_but_the_best_ones(
    seed: int, noise: float, at_once: int
) -> None:
    rules = Rules(AXES, seed=seed, at_once=at_once)
    trials = searched(rules, noisy(noise, seed))
    assert trials == searched(rules, noisy(noise, seed))
    exploring = [trial for trial in trials if trial.phase == "explore"]
    assert len({(trial.key, trial.seed) for trial in exploring}) == len(exploring)
    assert all(trial.seed == 1 for trial in exploring if trial.cap is not None)  # repeats have no cap
    seeds = [trial.seed for trial in trials if trial.phase == "decide"]
    assert not set(seeds) & {trial.seed for trial in exploring}
    assert all(later >= earlier for earlier, later in pairwise(seeds))
    outcome = answer(rules, trials)
    assert outcome.named is not None
    assert outcome.best_by_group is not None
    assert list(outcome.best_by_group) == [1, 2, 4]


KINDS = (
    Axis("batch_size", (8, 16, 32)),
    Axis("precision", ("bf16", "fp32", "tf32")),
    Axis("fused", (True, False)),
    Axis("num_workers", ("auto", 1, 2)),
    Axis("lr", low=0.001, high=0.1, log=True),
    Axis("dropout", low=0.0, high=0.5),
    Axis("num_warm", low=1, high=5, integer=True),
)


@settings(max_examples=7, deadline=None)
@given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3, unique=True), st.booleans(), st.integers(0, 99))
def test_a_search_of_any_axes_in_which_runs_miss_and_fail_ends_within_them(
    axes: list[Axis], grouped: bool, seed: int
) -> None:
    rules = Rules((*axes, *AXES[:1]) if grouped else tuple(axes), seed=seed)

    def end(trial: SearchTrial) -> SearchTrial:
        draw = random.Random(f"{seed} {trial.key}")
        state = draw.choice(("reached", "reached", "reached", "missed", "failed"))
        time = draw.uniform(10, 30)
        if state == "failed":
            return replace(trial, state="failed", cost=1.0)
        return replace(trial, state="missed", censored_at=40.0, cost=40.0) if state == "missed" else ended(trial, time)

    trials = searched(rules, end, most=400)
    for trial in trials:
        assert trial.setting.keys() == {axis.key for axis in rules.axes}
        for axis in rules.axes:
            value = trial.setting[axis.key]
            if axis.choices:
                assert value in axis.choices
            else:
                assert axis.low is not None
                assert axis.high is not None
                assert axis.low <= float(value) <= axis.high
                assert not axis.integer or isinstance(value, int)
    assert answer(rules, trials).why in ("decided", "not told apart", "nothing compared", "all missed")


@settings(max_examples=5, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_answer_does_not_depend_on_the_order_of_a_blocks_runs(order: random.Random) -> None:
    trials, expected = ordered()
    place = next(place for place, trial in enumerate(trials) if trial.phase == "decide")
    deciding = trials[place:]
    order.shuffle(deciding)
    assert answer(RULES, [*trials[:place], *deciding]) == expected


@functools.cache
def ordered() -> tuple[list[SearchTrial], Answer]:
    trials = searched(RULES, noisy(0.05, 5))
    return trials, answer(RULES, trials)
