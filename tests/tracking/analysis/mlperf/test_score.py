"""MLPerf's score: how many runs it takes, what a miss does, and which runs are repeats of each other."""

from __future__ import annotations

import json

import pytest

from tracking.analysis import mlperf


def log(seconds: float, seed: int, benchmark: str = "resnet", status: str = "success", batch: int = 64) -> str:
    start_ms = 1_700_000_000_000 + seed * 1_000_000
    said = {"submission_benchmark": benchmark, "seed": seed, "global_batch_size": batch}
    lines = [{"key": key, "value": value, "time_ms": start_ms - 5000, "metadata": {}} for key, value in said.items()]
    lines.append({"key": "run_start", "value": None, "time_ms": start_ms, "metadata": {}})
    stop_ms = start_ms + seconds * 1000
    lines.append({"key": "run_stop", "value": None, "time_ms": stop_ms, "metadata": {"status": status}})
    return "".join(f"[1]  :::MLLOG {json.dumps(line)}\n" for line in lines)


def scored(*logs: str) -> list[mlperf.Score]:
    return mlperf.scores((f"run{number}", text, {}) for number, text in enumerate(logs))


def test_it_is_the_mean_without_the_fastest_and_the_slowest_of_five_vision_runs() -> None:
    (score,) = scored(*(log(seconds, seed) for seed, seconds in enumerate([10, 50, 20, 30, 1])))
    assert score.seconds == pytest.approx(20)
    assert score.verdict == "20.00 s, the olympic mean of 5 runs"


def test_those_that_are_missing_are_counted() -> None:
    (score,) = scored(log(10, 1), log(11, 2))
    assert (score.seconds, score.num_missing) == (None, 3)
    assert score.verdict == "3 of 5 runs are missing"
    (other,) = scored(*(log(10, seed, "gnmt") for seed in range(5)))
    assert other.num_missing == 5


def test_one_miss_counts_as_the_slowest_and_a_second_invalidates() -> None:
    reached = [log(10 + seed, seed) for seed in range(4)]
    (score,) = scored(*reached, log(5, 9, status="aborted"))
    assert score.seconds == pytest.approx((11 + 12 + 13) / 3)
    (invalid,) = scored(*reached[:3], log(5, 8, status="aborted"), log(5, 9, status="aborted"))
    assert invalid.seconds is None
    assert invalid.verdict.startswith("invalid: 2 of 5 runs")


def test_runs_beyond_the_number_are_left_out_by_their_start_and_not_by_their_time() -> None:
    (score,) = scored(*(log(10, seed) for seed in range(5)), log(1, 7))
    assert score.seconds == pytest.approx(10)
    assert [run.name for run in score.left_out] == ["run5"]


def test_other_settings_are_scored_apart() -> None:
    assert [len(score.counted) for score in scored(log(1, 1), log(2, 2, batch=128), log(3, 3))] == [2, 1]


@pytest.mark.parametrize(
    "text", ["", ":::MLLOG {torn\n", ':::MLLOG {"key": "run_start", "time_ms": 1}\n', ":::MLLOG 7\n"]
)
def test_what_is_no_log_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"run0: .*MLPerf log"):
        scored(text)


def test_a_log_of_v0_5_that_says_no_status_is_judged_by_its_target() -> None:
    line = ":::MLPv0.5.0 resnet 154172038{}.5 (train.py:49) {}\n"
    said = {1: "eval_target: 0.749", 2: "run_start", 8: 'eval_accuracy: {"epoch": 3, "value": %s}', 9: "run_stop"}
    text = "".join(line.format(second, words) for second, words in said.items())
    for value, reached in (("0.7491", True), ("0.7489", False)):
        (score,) = scored(text % value)
        assert (score.counted[0].reached, score.counted[0].seconds) == (reached, 7)
