"""The shares of a run's time: they add up, come in their order, and name a limit only where one is large enough."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracking.analysis.audit.setting_tables import largest
from tracking.measure.bottleneck import time_shares
from tracking.measure.bottleneck.time_shares import Clock, divide, limit, words

percent = st.floats(0, 100)
SENSORS = (
    "gpu_engine_activity_percentage", "gpu_dram_bandwidth_percentage", "gpu_tensor_activity_percentage",
    "gpu_fp32_activity_percentage", "gpu_sm_clock_percentage", "gpu_power_throttled_percentage",
    "gpu_thermal_throttled_percentage", "gpu_sm_activity_percentage",
)  # fmt: skip
CORES = ("run_cpu_percentage", "neighbours_cpu_percentage")
CLOCK = Clock(total=100.0, evaluation=10.0, checkpoint=0.0, training=90.0, data=9.0, exchange=None)


@st.composite
def clocks(draw: st.DrawFn) -> Clock:
    evaluation, checkpoint, training = (draw(st.floats(0, 30)) for _ in range(3))
    total = evaluation + checkpoint + training + draw(st.floats(0.001, 10))
    return Clock(total, evaluation, checkpoint, training, *(draw(st.none() | st.floats(0, 40)) for _ in range(5)))


@given(
    clocks(), st.dictionaries(st.sampled_from((*SENSORS, *CORES)), percent),
    st.dictionaries(st.sampled_from(list(time_shares.COUNTERS)), st.floats(10, 100)),
)  # fmt: skip
def test_the_shares_add_up_whatever_was_measured(
    clock: Clock, means: dict[str, float], ceilings: dict[str, float]
) -> None:
    divided = divide(clock, means, ceilings)
    assert sum(divided.values()) == pytest.approx(1.0)
    assert all(0.0 <= share <= 1.0 for share in divided.values())
    assert ("exchange" in divided) == (clock.exchange is not None)
    assert ("host" in divided) == ("gpu_engine_activity_percentage" in means)
    assert limit(divided) in divided
    assert words(divided)


def test_a_step_that_the_memory_holds_up() -> None:
    means = {
        "gpu_engine_activity_percentage": 90.0, "gpu_dram_bandwidth_percentage": 60.0,
        "gpu_tensor_activity_percentage": 22.5, "gpu_sm_clock_percentage": 80.0,
        "gpu_power_throttled_percentage": 50.0, "gpu_thermal_throttled_percentage": 0.0,
    }  # fmt: skip
    divided = divide(CLOCK, means, {"dram": 90.0, "tensor": 90.0})
    # The GPU is idle for 9 % of the time on the clock, while it waits for data.
    assert divided == pytest.approx(
        {"evaluation": 0.1, "checkpoint": 0.0, "data": 0.09, "host": 0.0, "dram": 0.6, "tensor": 0.21, "power": 0.0,
         "unknown": 0.0}
    )  # fmt: skip
    assert limit(divided) == "dram"
    assert words(divided) == (
        "traffic of the GPU's memory (60 % of the time), then tensor cores (21 %), evaluation (10 %), waiting for data"
        " (9 %)"
    )


def test_a_gpu_without_work_waits_for_the_host_but_for_what_waits_for_data() -> None:
    divided = divide(CLOCK, {"gpu_engine_activity_percentage": 20.0}, {})
    assert divided["host"] == pytest.approx(0.9 * 0.8 - 0.09)
    assert limit(divided) == "host"


def test_cycles_that_power_took_count_by_how_far_the_clock_was_down() -> None:
    means = {
        "gpu_engine_activity_percentage": 100.0, "gpu_sm_clock_percentage": 75.0, "gpu_power_throttled_percentage": 80.0
    }  # fmt: skip
    assert divide(CLOCK, means, {})["power"] == pytest.approx(0.9 * 0.8 * 0.25)


@pytest.mark.parametrize(
    ("divided", "named"),
    [
        ({"data": 0.04, "unknown": 0.96}, "unknown"),
        ({"data": 0.06, "unknown": 0.94}, "data"),
        ({"data": 0.3, "unknown": 0.4}, "data"),  # What is not known cannot be acted on.
        ({"data": 0.3, "dram": 0.4, "unknown": 0.3}, "dram"),
        ({"unknown": 1.0}, "unknown"),
    ],
)
def test_a_limit_is_named_where_it_is_large_enough(divided: dict[str, float], named: str) -> None:
    assert limit(divided) == named


@given(st.permutations(["evaluation", "update", "unknown"]), st.floats(-1e-9, 1e-9))
def test_of_equal_shares_report_and_audit_name_the_same_cause(order: list[str], noise: float) -> None:
    """Two runs may have the same mean share of two causes, but for the last bits of a float."""
    shares = {"evaluation": 0.25, "update": 0.25 + noise, "unknown": 0.5}
    divided = {name: shares[name] for name in order}
    assert limit(divided) == "evaluation"
    assert words(divided).startswith("evaluation (25 %")
    assert largest({time_shares.NAMES[name]: share for name, share in divided.items()}) == "evaluation"


def test_self_play_and_the_gate_leave_the_counters_what_is_left_of_the_training() -> None:
    playing = replace(CLOCK, phases={"selfplay": 50.0, "gate": 10.0})
    means = {"gpu_engine_activity_percentage": 60.0, "gpu_dram_bandwidth_percentage": 40.0}
    on_gpu = divide(playing, means, {"dram": 100.0})
    # The GPU is idle in 40 % of each phase, while the search on the host has no work for it.
    assert on_gpu["host"] == pytest.approx(0.9 * 0.4 - 0.09)
    assert (on_gpu["selfplay"], on_gpu["gate"]) == pytest.approx((0.3, 0.06))
    assert on_gpu["dram"] == pytest.approx(0.3 * 0.4)
    on_cores = divide(playing, {"run_cpu_percentage": 90.0}, {})
    assert (on_cores["selfplay"], on_cores["processor"]) == pytest.approx((0.5, 0.3 * 0.9 - 0.06))
    assert limit(on_cores) == "selfplay"


def test_every_cause_has_a_name() -> None:
    everything = divide(CLOCK, dict.fromkeys(SENSORS, 1.0), dict.fromkeys(time_shares.COUNTERS, 100.0))
    timed = replace(CLOCK, exchange=1.0, gc=1.0, imbalance=1.0, update=1.0, phases={"selfplay": 1.0, "gate": 1.0})
    on_cores = divide(timed, dict.fromkeys(CORES, 1.0), {})
    assert everything.keys() | on_cores.keys() == time_shares.NAMES.keys()


def test_others_on_the_cores_are_a_cause_and_an_update_is_no_second_time_the_processors() -> None:
    means = {"run_cpu_percentage": 50.0, "neighbours_cpu_percentage": 40.0}
    divided = divide(replace(CLOCK, update=18.0), means, {})
    assert divided == pytest.approx(
        {"evaluation": 0.1, "checkpoint": 0.0, "data": 0.09, "update": 0.18, "processor": 0.36, "neighbours": 0.27,
         "unknown": 0.0}
    )  # fmt: skip


@given(clocks(), st.dictionaries(st.sampled_from((*SENSORS, *CORES)), percent))
def test_busy_cores_are_no_limit_of_a_run_on_a_gpu_even_if_the_gpu_has_no_sample(
    clock: Clock, means: dict[str, float]
) -> None:
    divided = divide(clock, means, {}, on_gpu=True)
    assert divided.keys().isdisjoint({"processor", "neighbours", "update"})
    assert sum(divided.values()) == pytest.approx(1.0)


def test_kernels_that_leave_multiprocessors_idle_are_known() -> None:
    means = {
        "gpu_engine_activity_percentage": 90.0, "gpu_sm_activity_percentage": 60.0,
        "gpu_dram_bandwidth_percentage": 45.0,
    }  # fmt: skip
    divided = divide(CLOCK, means, {"dram": 90.0})
    assert divided["kernels"] == pytest.approx(0.9 * 0.3)
    assert divided["latency"] == pytest.approx(0.9 * 0.6 - 0.9 * 45 / 90)
    assert divided["unknown"] < 0.1


def test_busy_multiprocessors_are_no_cause_where_no_ceiling_counts() -> None:
    assert "latency" not in divide(CLOCK, {"gpu_sm_activity_percentage": 60.0}, {})


def test_what_one_rank_takes_longer_and_collections_are_on_the_clock() -> None:
    divided = divide(replace(CLOCK, gc=20.0, imbalance=30.0), {"gpu_engine_activity_percentage": 50.0}, {})
    # The GPU has no work while its host collects garbage. That time counts once.
    assert (divided["gc"], divided["imbalance"]) == (0.2, 0.3)
    assert divided["host"] == pytest.approx(0.9 * 0.5 - 0.09 - 0.2)


def test_what_is_not_known_is_named_last() -> None:
    shares = {"dram": 0.28, "tensor": 0.22, "evaluation": 0.13, "data": 0.03, "unknown": 0.34}
    assert words(shares) == (
        "traffic of the GPU's memory (28 % of the time), then tensor cores (22 %), evaluation (13 %), not known (34 %)"
    )
    assert words({"data": 0.01, "unknown": 0.99}) == "not known (99 % of the time)"
