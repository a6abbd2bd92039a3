"""Rates and step times from windows."""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conf.schema import ConfigError
from tracking.measure.training import throughput
from tracking.measure.training.throughput import Window
from tracking.record.journal import Record

positive = st.floats(1e-4, 10.0)


def window(samples: int, *step_sec: float, wait: float = 0.0, epoch: int = 1) -> Window:
    """A window of one rank."""
    waits = tuple(wait for _ in step_sec)
    return Window(len(step_sec), epoch, samples, (math.fsum(step_sec),), (math.fsum(waits),), step_sec, waits)


def of_ranks(samples: int, ranks: Sequence[Sequence[float]], epoch: int = 1) -> Window:
    """A window of several ranks, each with the time of every step."""
    sums = tuple(map(math.fsum, ranks))
    nothing = (0.0,) * len(ranks)
    return Window(1, epoch, samples, sums, nothing, throughput.slowest(ranks), (0.0,) * len(ranks[0]))


def rate(windows: Sequence[Window]) -> float:
    return throughput.summarize(windows, 1)["throughput/samples_per_sec"]


def test_the_first_step_and_the_first_window_do_not_count() -> None:
    assert rate([window(100, 50.0), window(100, 9.0, 9.0), window(100, 0.5, 0.5), window(50, 0.25, 0.25)]) == 100.0


def test_of_a_short_run_all_steps_but_the_first_count_with_the_samples_that_they_had() -> None:
    """Two steps of 0.1 s, of 256 and of 44 samples: 440 a second, however large a full batch is."""
    assert rate([window(256, 0.1), window(44, 0.1)]) == pytest.approx(440.0)
    assert throughput.summarize([window(10, 9.0)], 1) == {}
    assert throughput.summarize([], 1) == {}


def test_a_delay_that_wanders_between_ranks_counts_once() -> None:
    """Two ranks hold each other up in turns: every step is slow on one of them, the window as long as either sum."""
    slow, fast = 0.06, 0.01
    turns = [[slow, fast] * 5, [fast, slow] * 5]
    windows = [of_ranks(4, [[1.0], [1.0]]), of_ranks(40, [[1.0] * 10] * 2), of_ranks(40, turns)]
    assert rate(windows) == pytest.approx(40 / (5 * (slow + fast)))
    assert windows[-1].samples_per_sec == pytest.approx(40 / (5 * (slow + fast)))


def test_an_epoch_takes_as_long_as_its_slowest_rank_and_epochs_add_up() -> None:
    cold = [of_ranks(1, [[1.0], [1.0]])] * 2
    first = [of_ranks(10, [[3.0], [1.0]]), of_ranks(10, [[1.0], [3.0]])]  # both ranks take 4 s
    second = [of_ranks(10, [[1.0], [2.0]], epoch=2)]
    assert rate([*cold, *first, *second]) == pytest.approx(30 / (4.0 + 2.0))


@given(st.integers(2, 8), st.lists(st.integers(1, 20), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_the_rate_is_that_of_the_wall_clock_for_ranks_that_wait_for_each_other(
    num_ranks: int, lengths: list[int], random: random.Random
) -> None:
    """Each rank's own work takes as long as it likes; then all wait for the last, as an exchange of gradients does."""
    windows = [of_ranks(8, [[1.0]] * num_ranks)] * 2
    wall = 0.0
    for length in lengths:
        work = [[random.uniform(0.01, 0.1) for _ in range(length)] for _ in range(num_ranks)]
        steps = [max(column) for column in zip(*work, strict=True)]
        wall += sum(steps)
        # A rank marks a step's end after its own work of the next one has begun late or early: shift the marks.
        late = [random.uniform(0.0, 0.005) for _ in range(length - 1)] + [0.0]
        ends = [[0.0, *shifted(steps, late, rank)] for rank in range(num_ranks)]
        windows.append(of_ranks(8 * length, [[stop - start for start, stop in pairwise(marks)] for marks in ends]))
    assert rate(windows) == pytest.approx(8 * sum(lengths) / wall)


def shifted(steps: Sequence[float], late: Sequence[float], rank: int) -> list[float]:
    """When a rank marks each step's end: every second rank late, the others in time; the last one together."""
    return [end + extra * (rank % 2) for end, extra in zip(accumulate(steps), late, strict=True)]


def test_a_clock_that_went_back_is_refused() -> None:
    assert throughput.slowest([[1.0, 5.0], [2.0, 3.0]]) == (2.0, 5.0)
    with pytest.raises(ValueError, match=r"longer|shorter"):
        throughput.slowest([[1.0], [1.0, 2.0]])
    with pytest.raises(ValueError, match="clock went back"):
        throughput.slowest([[-1.0]])


@given(st.lists(st.lists(positive, min_size=1, max_size=9), min_size=3, max_size=6), st.integers(1, 64))
def test_the_global_rate_is_world_size_times_the_devices_rate(steps: list[list[float]], world_size: int) -> None:
    windows = [window(32 * world_size * len(step_sec), *step_sec, wait=1e-5) for step_sec in steps]
    summary = throughput.summarize(windows, world_size)
    rate = summary["throughput/samples_per_sec"]
    assert rate == pytest.approx(world_size * summary["throughput/samples_per_sec_per_device"])
    assert min(w.samples_per_sec for w in windows[2:]) <= rate * (1 + 1e-9)
    assert rate <= max(w.samples_per_sec for w in windows[2:]) * (1 + 1e-9)
    assert 0 < summary["throughput/data_wait_fraction"] <= 1
    milliseconds = [1e3 * value for step_sec in steps[2:] for value in step_sec]
    for percent in (50, 90, 99):
        assert summary[f"throughput/step_ms_p{percent}"] == pytest.approx(np.percentile(milliseconds, percent))


def test_the_rank_that_waits_most_says_how_much_is_waited() -> None:
    ranks = Window(1, 1, 8, (2.0, 2.0), (0.2, 1.0), (2.0,), (1.0,))
    assert throughput.summarize([ranks] * 3, 2)["throughput/data_wait_fraction"] == pytest.approx(0.5)


def test_the_spread_is_kept() -> None:
    windows = [window(1, 1.0), window(1, 1.0), *(window(rate, 1.0) for rate in (10, 20, 30))]
    assert throughput.rate_quartiles(windows) == {
        "num_windows": 3,
        "samples_per_sec_p25": 15.0,
        "samples_per_sec_median": 20.0,
        "samples_per_sec_p75": 25.0,
    }
    assert throughput.rate_quartiles([]) == {"num_windows": 0}


def test_a_window_of_an_earlier_version_is_refused_in_words() -> None:
    values = {"step": 1, "samples": 4, "step_ms": [1.0], "wait_ms": [0.0]}
    event = Record("event", 0, 0.0, "throughput_window", values=values)
    with pytest.raises(ConfigError, match=r"without rank_ms, rank_wait_ms, from an earlier version .* start it anew"):
        throughput.read_windows([event])


def test_what_is_written_of_a_window_is_read_again() -> None:
    window = of_ranks(8, [[0.25, 0.5], [0.5, 0.25]])
    event = Record("event", 0, 0.0, "throughput_window", values=throughput.event_values(window))
    assert throughput.read_windows([event]) == [window]


def test_utilization_is_absent_where_the_peak_is_unknown() -> None:
    known = throughput.model_flops_utilization(2.34e9, 100_000, "NVIDIA H200", 2, "bf16")
    assert known == pytest.approx(2.34e14 / (2 * 989.4e12))
    assert throughput.model_flops_utilization(1e9, 1_978_900, "NVIDIA H100 80GB HBM3", 1, "fp8") == pytest.approx(1.0)
    assert throughput.model_flops_utilization(2.34e9, 100_000, "NVIDIA GeForce 9999", 1, "bf16") is None
    assert throughput.model_flops_utilization(2.34e9, 100_000, "Tesla T4", 1, "bf16") is None
    assert throughput.model_flops_utilization(1e9, 56_000, "Tesla V100-PCIE-16GB", 1, "fp16") == pytest.approx(0.5)
    assert throughput.model_flops_utilization(1e9, 56_000, "NVIDIA B200", 1, "fp32") is None  # its data sheets differ


def test_every_peak_has_its_source() -> None:
    rows = list(csv.DictReader(throughput.PEAKS_CSV.read_text(encoding="utf-8").splitlines()))
    assert len(rows) == len({row["gpu"] for row in rows}) == len(throughput.peak_flops())
    assert all(row["source"] for row in rows)


def test_tokens_are_of_source_target_and_both_and_absent_where_samples_have_none() -> None:
    windows = [replace(window(8, 1.0), tokens=(900, 900)), *[replace(window(8, 0.5, 0.5), tokens=(30, 20))] * 3]
    figures = throughput.summarize(windows, 1)
    rates = [figures[f"throughput/{side}tokens_per_sec"] for side in ("", "source_", "target_")]
    assert rates == pytest.approx([50.0, 30.0, 20.0])
    assert not [key for key in throughput.summarize([window(8, 1.0)] * 4, 1) if "tokens" in key]
    record = Record("event", 0, 0.0, key="throughput_window", values=throughput.event_values(windows[1]))
    assert throughput.read_windows([record]) == [windows[1]]
