"""A search that begins with an earlier one: fewer runs where that tells the truth, and no worse an answer where not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from tests.tracking.analysis.search.searches import AXES, Setting, noisy, searched, true_time
from tracking.analysis.search import DECIDE, EXPLORE, Rules, SearchTrial, answer, propose
from tracking.analysis.search.earlier import agreed_shape
from tracking.analysis.search.shape import Point, shape_of

ALL: list[Setting] = [
    dict(zip(("gpus", "batch_size", "lr"), values, strict=True)) for values in product(*(axis.choices for axis in AXES))
]
RATES = AXES[2].choices


def quicker(setting: Setting) -> float:
    """The same landscape on quicker GPUs, which need larger batches."""
    return true_time(setting) / 3 * (1 + 8 / float(setting["batch_size"]))


def mirrored(setting: Setting) -> float:
    """The learning rates the other way around, so that the best one lies at the other end."""
    return true_time({**setting, "lr": RATES[-1 - RATES.index(setting["lr"])]})


@pytest.fixture(scope="module")
def earlier() -> tuple[SearchTrial, ...]:
    trials = searched(Rules(AXES), noisy(0.03, 1))
    return tuple(replace(trial, phase=EXPLORE) for trial in trials)


def begun_with(earlier: tuple[SearchTrial, ...]) -> Rules:
    named = min((trial for trial in earlier if trial.value), key=lambda trial: trial.value or 0.0)
    return Rules(AXES, starts=(named.setting,), earlier=earlier)


def found(rules: Rules, time: Callable[[Setting], float]) -> tuple[list[SearchTrial], float]:
    """The runs of a search, and by what share its named setting is slower than the best."""
    trials = searched(rules, noisy(0.03, 2, time))
    named = answer(rules, trials).named
    assert named is not None
    return trials, time(named) / min(map(time, ALL)) - 1


def test_a_search_from_one_of_other_gpus_needs_half_of_the_runs(earlier: tuple[SearchTrial, ...]) -> None:
    alone, _ = found(Rules(AXES), quicker)
    trials, regret = found(begun_with(earlier), quicker)
    assert regret < 0.06
    assert len(trials) <= len(alone) / 2


def test_an_earlier_search_that_misleads_is_found_out(earlier: tuple[SearchTrial, ...]) -> None:
    alone, before = found(Rules(AXES), mirrored)
    rules = begun_with(earlier)
    trials, regret = found(rules, mirrored)
    assert regret <= max(before, 0.06)
    assert agreed_shape(rules, []) is not None
    assert agreed_shape(rules, trials) is None, "its runs contradict the earlier ones"
    assert len(trials) < 1.3 * len(alone)


def test_what_the_earlier_search_measured_is_in_no_figure(earlier: tuple[SearchTrial, ...]) -> None:
    rules = begun_with(earlier)
    trials, _ = found(rules, quicker)
    outcome = answer(rules, trials)
    assert outcome.num_explored + outcome.num_decided == len(trials)
    assert all(figure.mean is None or figure.mean < 0.8 * true_time(figure.setting) for figure in outcome.figures)
    anew = answer(replace(rules, earlier=()), trials)
    assert {figure.mean for figure in outcome.figures if figure.n} <= {figure.mean for figure in anew.figures}


def test_deciding_uses_no_seed_of_the_earlier_search(earlier: tuple[SearchTrial, ...]) -> None:
    trials, _ = found(begun_with(earlier), quicker)
    used = {trial.seed for trial in [*earlier, *trials] if trial.phase == EXPLORE}
    decided = {trial.seed for trial in trials if trial.phase == DECIDE}
    assert decided
    assert not decided & used


def test_it_goes_on_from_its_trials_as_it_would_have(earlier: tuple[SearchTrial, ...]) -> None:
    rules = begun_with(earlier)
    trials, _ = found(rules, quicker)
    for place in range(0, len(trials), 5):
        told = replace(trials[place], state="running", value=None, censored_at=None, cost=0.0)
        assert propose(rules, trials[:place]) == [told]


def test_an_earlier_search_in_which_every_run_diverged_tells_nothing() -> None:
    diverged = SearchTrial({"gpus": 1, "batch_size": 8, "lr": 0.008}, 1, EXPLORE, state="missed")
    rules = Rules(AXES, earlier=(diverged,))
    assert agreed_shape(rules, []) is None
    assert propose(rules, []) == propose(Rules(AXES), [])


def line(times: dict[float, float], bounds: dict[float, float] | None = None) -> tuple[Point, ...]:
    """Settings along one axis by the logarithms of their times; of some only a bound is known."""
    seen = [Point((place,), log, 1e-4, True) for place, log in times.items()]
    return (*seen, *(Point((place,), bound, 0.16, False, bound) for place, bound in (bounds or {}).items()))


VALLEY = line({0.0: 1.0, 1.0: 0.3, 2.0: 0.0, 3.0: 0.3, 4.0: 1.0})


def test_no_gain_is_expected_where_the_earlier_search_was_slow_and_this_one_follows_it() -> None:
    shape = shape_of(VALLEY, line({1.0: -0.7, 2.0: -1.0, 3.0: -0.7}))
    slow, near = shape.expected_gains([(4.0,), (2.5,)], [(2.0,)])
    assert shape.doubt < 0.3
    assert slow < 1e-4
    assert near > slow


def test_runs_that_contradict_the_earlier_search_bring_it_into_doubt_and_a_gain_is_expected_again() -> None:
    shape = shape_of(VALLEY, line({1.0: 0.5, 2.0: 0.0, 3.0: -1.0}))
    assert shape.doubt > 0.6
    assert shape.expected_gains([(4.0,)], [(3.0,)])[0] > 0.05


def test_a_run_that_was_stopped_contradicts_only_an_earlier_time_before_its_cap() -> None:
    reached = {2.0: -1.0, 3.0: -0.7}
    agrees = shape_of(VALLEY, line(reached, {0.0: -0.8})).doubt
    contradicts = shape_of(VALLEY, line(reached, {1.0: 1.0})).doubt
    assert agrees <= shape_of(VALLEY, line(reached)).doubt + 0.02
    assert contradicts > agrees
