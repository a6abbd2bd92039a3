"""Rates and step times from windows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracking.measure import throughput
from tracking.measure.throughput import Window

positive = st.floats(1e-4, 10.0)


def window(samples: int, *step_sec: float, wait: float = 0.0) -> Window:
    return Window(len(step_sec), samples, step_sec, tuple(wait for _ in step_sec))


def test_the_first_window_does_not_count() -> None:
    summary = throughput.summarize([window(100, 50.0, 50.0), window(100, 0.5, 0.5), window(50, 0.25, 0.25)], 1)
    assert summary["throughput/samples_per_sec"] == 100.0


def test_of_a_single_window_all_steps_but_the_first_count() -> None:
    summary = throughput.summarize([window(30, 9.0, 0.5, 0.5)], 1)
    assert summary["throughput/samples_per_sec"] == 20.0
    assert throughput.summarize([window(10, 9.0)], 1) == {}
    assert throughput.summarize([], 1) == {}


def test_the_slowest_rank_decides_every_step() -> None:
    assert throughput.slowest([[1.0, 5.0], [2.0, 3.0]]) == (2.0, 5.0)
    with pytest.raises(ValueError, match=r"longer|shorter"):
        throughput.slowest([[1.0], [1.0, 2.0]])
    with pytest.raises(ValueError, match="clock went back"):
        throughput.slowest([[-1.0]])


@given(st.lists(st.lists(positive, min_size=1, max_size=9), min_size=2, max_size=6), st.integers(1, 64))
def test_the_global_rate_is_world_size_times_the_devices_rate(steps: list[list[float]], world_size: int) -> None:
    windows = [window(32 * world_size * len(step_sec), *step_sec, wait=1e-5) for step_sec in steps]
    summary = throughput.summarize(windows, world_size)
    rate = summary["throughput/samples_per_sec"]
    assert rate == pytest.approx(world_size * summary["throughput/samples_per_sec_per_device"])
    assert min(w.samples_per_sec for w in windows[1:]) <= rate * (1 + 1e-9)
    assert rate <= max(w.samples_per_sec for w in windows[1:]) * (1 + 1e-9)
    assert 0 < summary["throughput/data_wait_fraction"] <= 1
    milliseconds = [1e3 * value for step_sec in steps[1:] for value in step_sec]
    for percent in (50, 90, 99):
        assert summary[f"throughput/step_ms_p{percent}"] == pytest.approx(np.percentile(milliseconds, percent))


def test_the_spread_is_kept() -> None:
    windows = [window(1, 1.0), *(window(rate, 1.0) for rate in (10, 20, 30))]
    assert throughput.spread(windows) == {
        "num_windows": 3,
        "samples_per_sec_p25": 15.0,
        "samples_per_sec_median": 20.0,
        "samples_per_sec_p75": 25.0,
    }
    assert throughput.spread([]) == {"num_windows": 0}


def test_utilization_is_absent_where_the_peak_is_unknown() -> None:
    known = throughput.model_flops_utilization(2.34e9, 100_000, "NVIDIA H200", 2, "bf16")
    assert known == pytest.approx(2.34e14 / (2 * 989.4e12))
    assert throughput.model_flops_utilization(2.34e9, 100_000, "NVIDIA GeForce 9999", 1, "bf16") is None
    assert throughput.model_flops_utilization(2.34e9, 100_000, "Tesla T4", 1, "bf16") is None
