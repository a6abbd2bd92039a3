from __future__ import annotations

from dataclasses import replace

import pytest

from tracking.measure.training.summary import steps_by_node
from tracking.measure.training.throughput import Window


def window(*rank_sec: float, wait: float = 0.0) -> Window:
    """Four steps."""
    waits = tuple(wait for _ in rank_sec)
    return Window(4, 1, 8, rank_sec, waits, (max(rank_sec) / 4,) * 4, (wait / 4,) * 4)


def test_the_slowest_node_comes_first_by_its_slowest_rank() -> None:
    rows = steps_by_node([window(1.0, 1.0, 1.0, 2.0), window(1.0, 1.0, 1.0, 3.0, wait=0.5)], ["a", "a", "b", "b"])
    assert [row["node"] for row in rows] == ["b", "a"]
    assert [row["step_ms"] for row in rows] == pytest.approx([625.0, 250.0])
    assert [row["data_wait_fraction"] for row in rows] == pytest.approx([0.1, 0.25])


def test_a_loop_that_does_not_tell_of_its_waits_has_step_times_alone() -> None:
    unknown = replace(window(1.0, 2.0), rank_wait_sec=(), wait_sec=())
    assert steps_by_node([unknown], ["a", "b"]) == [{"node": "b", "step_ms": 500.0}, {"node": "a", "step_ms": 250.0}]


@pytest.mark.parametrize(("windows", "names"), [([window(1.0, 1.0)], ["a", "a"]), ([], ["a", "b"])])
def test_a_machine_alone_or_no_window_says_nothing(windows: list[Window], names: list[str]) -> None:
    assert steps_by_node(windows, names) == []
