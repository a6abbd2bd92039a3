"""The gate's decision, on simulated runs whose truth is known, and on sides with missing values."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

from tracking.analysis.compare.gate_side import Side
from tracking.analysis.compare.non_inferiority import (
    CANNOT_TELL,
    NOT_SLOWER,
    SLOWER,
    GateVerdict,
    advised,
    compared,
    decide,
)
from tracking.analysis.statistics import Times

TIME, RATE = "time/to_accuracy_sec", "throughput/samples_per_sec"
DRAWS = 1000


def of(
    *values: float, given_up: Sequence[float] = (), diverged: int = 0, failed: dict[str, int] | None = None,
    running: int = 0, without: int = 0,
) -> Side:  # fmt: skip
    missed = len(given_up) + diverged
    return Side(values, len(values) + missed + without, missed, failed or {}, running, given_up, diverged)


def rates(ratio: float, repeats: int, spread: float, margin: float = 0.03, wider: float = 1.0) -> list[float]:
    """Shares of passes, fails and undecided gates where the true ratio of means is `ratio`."""
    random = np.random.default_rng(7)
    baseline = random.normal(100, spread, (DRAWS, repeats))
    candidate = random.normal(100 * ratio, wider * spread, (DRAWS, repeats))
    codes = [
        compared(Times(list(a)), Times(list(b)), 1 + margin, 0.95) for a, b in zip(candidate, baseline, strict=True)
    ]
    return [codes.count(code) / DRAWS for code in (NOT_SLOWER, SLOWER, CANNOT_TELL)]


# The standard error of a share of 0.05 in 1000 draws is 0.007.
@pytest.mark.parametrize(("repeats", "wider"), [(3, 1.0), (5, 1.0), (5, 3.0), (10, 0.3)])
def test_at_the_margin_one_gate_in_twenty_passes_and_one_in_twenty_fails(repeats: int, wider: float) -> None:
    passed, failed, undecided = rates(1.03, repeats, 2.0, wider=wider)
    assert passed < 0.065
    assert failed < 0.065
    assert undecided > 0.87
    if repeats >= 5:
        assert min(passed, failed) > 0.025  # It is not on the safe side by giving up power.


@pytest.mark.slow
def test_what_is_slower_than_the_margin_passes_less_often_still() -> None:
    passed, _, _ = rates(1.05, 5, 2.0)
    assert passed < 0.01
    assert rates(1.10, 5, 2.0)[1] > 0.95


@pytest.mark.slow
def test_what_is_not_slower_fails_hardly_ever() -> None:
    passed, failed, _ = rates(1.0, 5, 2.0)
    assert failed < 0.005
    assert 0.4 < passed < 0.8  # Repeats are few, and their spread is large.
    assert rates(1.0, 5, 0.5)[0] > 0.99
    assert rates(0.9, 5, 2.0)[0] > 0.99


def test_the_advice_on_repeats_comes_true() -> None:
    verdict = decide(of(98, 102, 100), of(98, 102, 100), TIME, 0.03)
    assert verdict.code == CANNOT_TELL
    advised = re.search(r"(\d+) \(up to (\d+)\) if it is as fast", verdict.why)
    assert advised
    passed, _, _ = rates(1.0, int(advised[1]), 2.0)
    assert 0.76 < passed < 0.88
    assert int(advised[2]) > 3 * int(advised[1])  # three runs say little of the spread


def test_the_upper_number_of_runs_that_is_advised_tells_in_four_cases_of_five() -> None:
    """From a pilot of three runs a side, whose spread is 2 %; the lower number does so where that spread is the true
    one."""
    random, told = np.random.default_rng(5), []
    for _ in range(80):
        pilot = [of(*random.normal(100, 2, 3)) for _ in range(2)]
        advice = advised(pilot[0].times, pilot[1].times, 0.03, 0.95, ("candidate", "baseline"))
        numbers = re.search(r"\d+ \((?:up to (\d+)|or far more)\) if it is as fast", advice)
        n = int(numbers[1]) if numbers and numbers[1] else 300
        candidate, baseline = random.normal(100, 2, (2, 20, n))
        codes = [compared(Times(list(a)), Times(list(b)), 1.03, 0.95) for a, b in zip(candidate, baseline, strict=True)]
        told.append(codes.count(NOT_SLOWER) / 20)
    assert np.mean(told) > 0.8


def test_it_names_the_side_that_needs_more_runs() -> None:
    random = np.random.default_rng(1)
    many, few = of(*random.normal(100, 2, 20)), of(*random.normal(100, 2, 3))
    assert re.search(r"\d+ of the candidate \(up to \d+\) if it is as fast", decide(many, few, TIME, 0.03).why)
    assert re.search(r"\d+ of the baseline \(up to \d+\) if it is as fast", decide(few, many, TIME, 0.015).why)


def test_between_two_bounds_is_a_two_sided_interval() -> None:
    """Two one-sided bounds at 0.95 hold the true slowdown in 91 % of gates."""
    random = np.random.default_rng(2)
    inside = []
    for _ in range(120):
        verdict = decide(of(*random.normal(100, 5, 5)), of(*random.normal(103, 5, 5)), TIME, 0.03)
        assert verdict.slowdown is not None
        inside.append(verdict.slowdown[0] < 0.03 < verdict.slowdown[2])
    assert 0.93 < np.mean(inside) < 0.99


def test_a_time_and_its_rate_get_the_same_verdict() -> None:
    base, cand = [10.0, 10.1, 9.9], [11.0, 11.2, 11.1]
    slower = decide(of(*base), of(*cand), TIME, 0.03)
    assert slower.code == SLOWER
    assert slower.slowdown is not None
    assert slower.slowdown[1] == pytest.approx(0.11)
    as_rates = decide(of(*(1 / value for value in base)), of(*(1 / value for value in cand)), RATE, 0.03)
    assert as_rates.code == SLOWER
    assert as_rates.slowdown is not None
    assert as_rates.slowdown[1] == pytest.approx(0.11, abs=2e-3)  # a mean of rates is not the rate of a mean
    assert decide(of(*cand), of(*base), TIME, 0.03).code == NOT_SLOWER
    assert decide(of(*base), of(*cand), RATE, 0.03).code == NOT_SLOWER  # a higher rate is not slower


def test_the_sentence_says_by_how_much_and_how_sure() -> None:
    slower = decide(of(10.0, 10.1, 9.9), of(11.0, 11.2, 11.1), TIME, 0.03)
    assert re.fullmatch(
        r"time/to_accuracy_sec: slower: slowdown \+11\.0%, allowed \+3%; at least \+8\.5% at a confidence of 0\.95"
        r"; reached the target: baseline 3 of 3, candidate 3 of 3",
        slower.sentence,
    )
    assert decide(of(10.0, 10.1, 9.9), of(10.0, 10.0, 10.1), TIME, 0.035).why.count("allowed +3.5%") == 1


def test_values_without_spread_are_compared_as_they_are() -> None:
    assert decide(of(10, 10), of(10, 10), "epochs/to_accuracy", 0.0).code == NOT_SLOWER
    assert decide(of(10, 10), of(11, 11), "epochs/to_accuracy", 0.1).code == NOT_SLOWER
    assert decide(of(10, 10), of(11, 11), "epochs/to_accuracy", 0.09).code == SLOWER


@pytest.mark.parametrize(
    ("base", "cand"), [((1.0,), (1.0, 1.1)), ((1.0, 1.1), (1.0,)), ((1.0,), (9.0,)), ((), (1.0, 2.0))]
)
def test_one_run_a_side_cannot_tell(base: tuple[float, ...], cand: tuple[float, ...]) -> None:
    verdict = decide(of(*base), of(*cand), TIME, 0.03)
    assert verdict.code == CANNOT_TELL
    assert f"{len(base)} of the baseline and {len(cand)} of the candidate" in verdict.why
    assert "seed=1,2,3" in verdict.why


def test_a_candidate_that_misses_the_target_more_often_does_not_pass() -> None:
    baseline = of(*(10.0 + place / 10 for place in range(10)))
    verdict = decide(baseline, of(*(1.0 + place / 10 for place in range(9)), given_up=[2.0]), TIME, 0.03)
    assert verdict.code == CANNOT_TELL
    assert "1 of 10 runs of the candidate did not reach the target, of the baseline 0 of 10" in verdict.why
    assert "reached the target: baseline 10 of 10 (72-100 %), candidate 9 of 10 (60-98 %)" in verdict.why
    assert decide(of(10.0, 10.1, 9.9), of(5.0, 5.1, given_up=[12.0]), TIME, 0.03).code == CANNOT_TELL


def test_a_candidate_that_takes_longer_than_the_baseline_without_getting_there_is_slower() -> None:
    verdict = decide(of(10.0, 10.1, 9.9), of(given_up=[30.0, 31.0, 30.5]), TIME, 0.03)
    assert verdict.code == SLOWER
    assert "slowdown ≥ +205.0%, allowed +3%; at least" in verdict.why
    assert "candidate: 3 of 3 runs did not reach the target, and count against it" in verdict.notes
    assert decide(of(10.0, 10.1, 9.9), of(given_up=[9.0, 9.1, 9.2]), TIME, 0.03).code == CANNOT_TELL  # stopped sooner
    assert decide(of(10.0, 10.1), of(given_up=[30.0, 31.0]), TIME, 0.03).code == CANNOT_TELL  # Two coins would fall so.


@pytest.mark.slow
def test_a_baseline_that_misses_makes_no_candidate_slower() -> None:
    """The same times on both sides. The baseline's later ones were cut off."""
    random = np.random.default_rng(0)
    codes = []
    for _ in range(75):
        baseline, candidate = random.normal(100, 20, (2, 12))
        cut = of(*baseline[baseline < 100], given_up=[100.0] * int((baseline >= 100).sum()))
        codes.append(decide(cut, of(*candidate), TIME, 0.03).code)
    assert codes.count(SLOWER) <= 0.02 * len(codes)


def test_where_no_run_gets_there_the_shares_are_all_that_is_told() -> None:
    verdict = decide(of(given_up=[9.0, 9.1]), of(given_up=[5.0], diverged=1), TIME, 0.03)
    assert verdict.code == CANNOT_TELL
    assert "no run reached its target; Give runs more room" in verdict.why
    assert "baseline 0 of 2, candidate 0 of 2" in verdict.why


def test_misses_on_both_sides_leave_no_slowdown_that_was_observed() -> None:
    both = of(10.0, 10.1, 9.9, 10.0, 10.2, given_up=[30.0])
    verdict = decide(both, both, TIME, 0.03)
    assert verdict.code == CANNOT_TELL
    assert "slowdown unknown, allowed +3%; between" in verdict.why
    assert verdict.slowdown is not None
    assert verdict.slowdown[1] is None


@pytest.mark.parametrize("metric", [TIME, RATE])
def test_a_candidate_that_never_reaches_the_target_fails_where_both_had_the_budget(metric: str) -> None:
    """Ten of ten within 60 s, and none of ten: with a budget of 100 s a failure, with 30 s undecided."""
    values = [50.0 + place for place in range(10)]
    rate = metric == RATE

    def side(reached: Sequence[float], missed: Sequence[float] = (), stopped: Sequence[float] = ()) -> Side:
        reaching = Times(reached, missed, stopped)
        if rate:
            return Side([900.0 + place for place in range(10)], 10, len(missed), reaching=reaching)
        return Side(reached, 10, len(missed), given_up=missed, stopped=stopped, reaching=reaching)

    baseline = side(values)
    never = decide(baseline, side([], [100.0] * 10), metric, 0.03)
    assert never.code == SLOWER
    if rate:
        assert "the candidate reaches the target less often: 0 of 10 runs, and 10 of 10 of the baseline by 100 s" in (
            never.why
        )
    assert decide(baseline, side([], [100.0] * 9, [1.0]), metric, 0.03).code == SLOWER  # one was stopped early
    undecided = NOT_SLOWER if rate else CANNOT_TELL
    assert decide(baseline, side([], [30.0] * 10), metric, 0.03).code == undecided
    assert decide(baseline, side([], stopped=[30.0] * 10), metric, 0.03).code == undecided
    assert decide(side([], [100.0] * 10), side(values), metric, 0.03).code == NOT_SLOWER


def test_a_missed_target_is_told_and_does_not_decide_over_a_rate() -> None:
    verdict = decide(Side((100, 101), 2), Side((100, 101, 100.5), 3, missed=3), RATE, 0.1)
    assert verdict.code == NOT_SLOWER
    assert "candidate: 3 of 3 finished runs missed the target" in verdict.notes


def test_a_candidate_that_fails_more_often_does_not_pass() -> None:
    verdict = decide(of(10.0, 10.1, 9.9), of(9.0, 9.1, 8.9, failed={"oom": 2}), TIME, 0.03)
    assert verdict.code == CANNOT_TELL
    assert "2 of 5 runs of the candidate failed (oom (2)), of the baseline 0 of 3" in verdict.why
    assert "candidate: 2 of 5 runs failed and are not counted: oom (2)" in verdict.notes
    assert decide(of(10.0, 10.1, failed={"error": 1}), of(9.0, 9.1, failed={"oom": 1}), TIME, 0.03).code == NOT_SLOWER
    slower = decide(of(10.0, 10.1, 9.9), of(19.0, 19.1, 18.9, failed={"oom": 2}), TIME, 0.03)
    assert slower.code == SLOWER


def test_what_is_left_out_is_told() -> None:
    verdict = decide(of(10.0, 10.1, without=2), of(10.0, 10.1, running=1), TIME, 0.1)
    assert verdict.notes == [
        f"baseline: 2 of 4 finished runs have no {TIME}",
        "candidate: left out: 1 run still running",
    ]


def test_where_the_margin_is_the_truth_no_repeats_would_tell() -> None:
    verdict = decide(of(99.0, 101.0), of(199.0, 201.0), TIME, 1.0)
    assert verdict.code == CANNOT_TELL
    assert "runs a side" in verdict.why.lower()  # It would tell a candidate as fast as the baseline.
    assert "no number of repeats" in decide(of(99.0, 101.0), of(99.0, 101.0), TIME, 0.0).why


def test_metrics_of_which_no_slowdown_can_be_told() -> None:
    for metric in ("world_size", "system/cpu_utilization_percentage", "throughput/other"):
        with pytest.raises(ValueError, match=f"neither a lower nor a higher {metric} is better"):
            decide(of(1.0, 2.0), of(1.0, 2.0), metric, 0.03)
    for metric in ("eval/accuracy", "eval/loss", "eval/fid", "test/power", "latency_ms"):
        with pytest.raises(ValueError, match=r"whether a lower or a higher .* is better is not declared.* declare it"):
            decide(of(1.0, 2.0), of(1.0, 2.0), metric, 0.03)
    with pytest.raises(ValueError, match="positive"):
        decide(of(0.0, 0.0), of(1.0, 2.0), "throughput/data_wait_fraction", 0.03)


@pytest.mark.parametrize(
    ("metric", "better", "candidate", "code"),
    [
        ("eval/fid", "lower", (20.0, 20.1, 19.9), SLOWER),
        ("eval/fid", "lower", (9.0, 9.1, 8.9), NOT_SLOWER),
        ("eval/power", "higher", (20.0, 20.1, 19.9), NOT_SLOWER),
        ("test/power", "higher", (9.0, 9.1, 8.9), SLOWER),
    ],
)
def test_a_metric_whose_direction_is_declared_is_judged_by_it(
    metric: str, better: str, candidate: tuple[float, ...], code: int
) -> None:
    declared = {metric.partition("/")[2]: better}
    verdict = decide(of(10.0, 10.1, 9.9), of(*candidate), metric, 0.03, declared=declared)
    assert verdict.code == code
    assert f"{metric}: {'worse' if code == SLOWER else 'not worse'}: change for the worse " in verdict.sentence


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("cost/usd", "worse: change for the worse"),
        ("energy/kwh", "worse: change for the worse"),
        ("throughput/data_wait_fraction", "worse: change for the worse"),
        ("throughput/step_ms_p50", "slower: slowdown"),
        ("time/epoch_sec", "slower: slowdown"),
    ],
)
def test_only_times_and_rates_are_slower(metric: str, words: str) -> None:
    assert decide(of(10.0, 10.1, 9.9), of(20.0, 20.1, 19.9), metric, 0.03).sentence.startswith(f"{metric}: {words} ")


def test_the_table_shows_both_sides() -> None:
    verdict: GateVerdict = decide(of(10.0, 12.0, failed={"oom": 1}), of(10.0, 12.0, given_up=[14.0]), TIME, 0.03)
    assert verdict.table().text() == [
        ["baseline", "2", "11 ± 1", "2 of 2", "oom (1)"],
        ["candidate", "3", "≥ 12 ± 1.2", "2 of 3", ""],
    ]
