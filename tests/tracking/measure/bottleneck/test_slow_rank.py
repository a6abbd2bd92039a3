"""The rank that waits least in the exchange is named, with what explains it; and none where all wait alike."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from numpy.random import Generator

from tracking.analysis.audit.journals import waits as audited
from tracking.measure.bottleneck import slow_rank
from tracking.measure.bottleneck.advice import AGAINST_SLOW_RANK

NODES = [{"node": "a"}, {"node": "a"}, {"node": "b"}, {"node": "b"}]
ALIKE = {
    "rank_ms": [100.0] * 4, "rank_wait_ms": [1.0] * 4, "rank_exchange_ms": [61.0, 60.0, 62.0, 10.0],
    "rank_core_ms": [40.0, 40.0, 40.0, 88.0], "step_ms": [10.0] * 10,
}  # fmt: skip


def said(**values: Any) -> dict[str, Any]:
    return ALIKE | values


def verdict(windows: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    """The verdict on a training of these windows five times over, so that it is beyond noise."""
    return slow_rank.verdict(slow_rank.ranks(windows * 5), NODES, options.pop("gpus", {}), **options)


def test_a_late_loader_is_named_with_its_rank_and_node() -> None:
    window = said(rank_wait_ms=[1.0, 1.0, 1.0, 48.0], rank_late=[0, 0, 0, 3])
    slow = verdict([window, said(rank_wait_ms=[1.0, 1.0, 1.0, 48.0], rank_late=[0, 0, 0, 4])])
    assert (slow["rank"], slow["node"], slow["cause"], slow["waited"]) == (3, "b", "data", 0.51)
    assert slow["words"] == (
        "rank 3 on node b waits least in the exchange, and the others wait 51 % of the time for it: "
        "its loader is late in 35 % of steps"
    )


@pytest.mark.parametrize(
    ("values", "options", "cause"),
    [
        ({"rank_gc_ms": [0, 0, 0, 45.0]}, {}, "gc"),
        ({"rank_queued_ms": [0, 0, 0, 45.0]}, {}, "queued"),
        ({"rank_core_ms": [38.0, 38.0, 38.0, 40.0]}, {}, "queued"),  # a kernel that does not count the queue
        ({"rank_queued_ms": [20.0, 20.0, 20.0, 44.0]}, {}, "computing"),  # 2.2 times the work, and so the queue.
        ({"rank_queued_ms": [1.0] * 4, "rank_core_ms": [38.0, 38.0, 38.0, 40.0]}, {}, "blocked"),
        ({"rank_queued_ms": [1.0] * 4, "rank_core_ms": [38.0, 38.0, 38.0, 70.0]}, {}, "computing"),  # most is work
        ({"rank_core_ms": [10.0, 10.0, 10.0, 22.0]}, {}, "computing"),  # All are short of cores, and it has more work.
        ({"rank_quota_ms": [0, 0, 0, 45.0]}, {}, "quota"),
        ({"rank_samples": [8.0, 8.0, 8.0, 16.0]}, {}, "samples"),
        ({}, {}, "computing"),
        ({}, {"co_tenants": "1 process"}, "co-tenant"),
        ({}, {"gpus": {0: {"power_throttled_percentage": 0.0}, 3: {"power_throttled_percentage": 80.0}}}, "power"),
        ({}, {"gpus": {0: {"sm_clock_percentage": 98.0}, 3: {"sm_clock_percentage": 60.0}}}, "clock"),
        ({}, {"gpus": {0: {"ecc_errors": 0.0}, 3: {"ecc_errors": 2.0}}}, "ecc"),
        ({}, {"gpus": {0: {"pcie_link_percentage": 100.0}, 3: {"pcie_link_percentage": 25.0}}}, "links"),
    ],
)
def test_each_cause_has_its_evidence(values: dict[str, Any], options: dict[str, Any], cause: str) -> None:
    slow = verdict([said(**values)], **options)
    assert (slow["rank"], slow["cause"]) == (3, cause)
    assert cause in AGAINST_SLOW_RANK


def test_no_rank_is_named_where_all_wait_alike_or_where_nothing_is_known() -> None:
    assert not verdict([said(rank_exchange_ms=[60.0, 61.0, 60.0, 58.0])])
    assert not verdict([{"rank_ms": [100.0] * 4}])
    assert slow_rank.imbalance(slow_rank.ranks([said(rank_exchange_ms=[60.0, 61.0, 60.0, 58.0])] * 5)) == 0.0


def test_a_delay_that_wanders_from_rank_to_rank_names_none() -> None:
    windows = [said(rank_exchange_ms=[50.0 - 40.0 * (rank == late) for rank in range(4)]) for late in range(4)]
    assert not verdict(windows)


@pytest.mark.parametrize("values", [{}, {"rank_gc_ms": [0, 0, 0, 20.0]}, {"rank_wait_ms": [1.0, 1.0, 1.0, 48.0]}])
def test_the_audit_comes_to_the_same_wait(values: dict[str, Any]) -> None:
    windows = [said(**values), {"rank_ms": [1.0] * 4}] * 5
    assert slow_rank.imbalance(slow_rank.ranks(windows)) > 0.0
    assert audited.waited_in_vain(windows) / 1e3 == pytest.approx(slow_rank.imbalance(slow_rank.ranks(windows)))


def test_the_shares_of_a_rank_sum_to_one_whatever_its_host_counted() -> None:
    """A control group counts a halt once for each CPU, so that halts may be longer than the time."""
    window = said(rank_quota_ms=[0, 0, 0, 140.0], rank_gc_ms=[0, 0, 0, 20.0])
    row = slow_rank.ranks([window])[3].plain()
    assert row["data"] + row["exchange"] + row["host"] + row["computing"] == pytest.approx(1.0)
    assert row["host"] == pytest.approx(0.89)
    assert "halts it for 100 % of its time" in verdict([window])["words"]


def test_a_short_last_batch_does_not_make_a_rank_the_one_with_more_samples() -> None:
    alike, last = said(samples=4 * 32 * 10), said(samples=112, rank_samples=[16.0, 32.0, 32.0, 32.0])
    assert verdict([alike] * 20 + [last])["cause"] == "computing"
    assert slow_rank.ranks([alike, last])[0].samples == 320 + 16


def simulated(
    random: Generator, num_ranks: int, num_windows: int, work: float, hiccup: float
) -> list[dict[str, list[float]]]:
    """Windows of ten steps, of ranks that wait for each other. The last rank has `work` times the others' work.

    A step's work scatters by a tenth, and in a fiftieth of the steps it takes `hiccup` times as long.
    """
    steps = random.lognormal(0.0, 0.1, (num_windows, 10, num_ranks))
    steps = steps * numpy.where(random.random(steps.shape) < 0.02, hiccup, 1.0)
    steps[..., -1] *= work
    slowest = steps.max(axis=2, keepdims=True)
    waits, whole = (slowest - steps + 0.05).sum(axis=1), (slowest + 0.05).sum(axis=1)
    return [
        {"rank_ms": [float(row_whole[0])] * num_ranks, "rank_exchange_ms": row.tolist(), "step_ms": [1.0] * 10}
        for row, row_whole in zip(waits, whole, strict=True)
    ]


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
@pytest.mark.parametrize("hiccup", [1.0, 10.0])
def test_of_equal_ranks_one_is_named_in_one_run_of_a_hundred_at_most(num_ranks: int, hiccup: float) -> None:
    random, runs, blamed = numpy.random.default_rng(num_ranks), 300, 0
    for num_windows in (3, 6, 12, 40):
        for _ in range(runs):
            windows = simulated(random, num_ranks, num_windows, 1.0, hiccup)
            held_up = slow_rank.waited_for(slow_rank.ranks(windows))
            assert audited.is_beyond_noise(windows) or held_up is None
            blamed += held_up is not None
    assert blamed <= 0.01 * 4 * runs


@pytest.mark.parametrize(("num_ranks", "num_windows"), [(2, 8), (4, 5), (8, 4)])
def test_a_rank_with_twice_the_work_is_found_with_the_fewest_windows_that_tell(
    num_ranks: int, num_windows: int
) -> None:
    random = numpy.random.default_rng(num_windows)
    for _ in range(100):
        windows = simulated(random, num_ranks, num_windows, 2.0, 1.0)
        slow = slow_rank.verdict(slow_rank.ranks(windows), [], {})
        assert (slow["rank"], slow["cause"]) == (num_ranks - 1, "computing")
        assert audited.is_beyond_noise(windows)
        assert not slow_rank.verdict(slow_rank.ranks(windows[:-1]), [], {})
        assert not audited.is_beyond_noise(windows[:-1])
