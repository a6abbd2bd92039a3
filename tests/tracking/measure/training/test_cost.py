"""What a run costs: price x nodes x the time on its clock."""

from __future__ import annotations

import pytest

from conf.launch_options import InstanceConfig
from conf.schema import RunConfig
from tracking.measure.training import summary
from tracking.record import Record

PRICE = 3600.0  # USD an hour: a second costs 1 USD


def cost(*events: tuple[str, float], nodes: int = 1) -> dict[str, float]:
    config = RunConfig(instance=InstanceConfig(price_per_hour=PRICE), nodes=nodes)
    records = [Record("event", int(1e3 * sec), sec, key) for key, sec in events]
    return summary.cost(config, records, {})


@pytest.mark.parametrize("later", ["checkpoint_saved", "gradient_exchange"])
def test_what_is_journaled_after_the_clock_has_stopped_costs_nothing(later: str) -> None:
    assert cost(("init_start", 0.0), ("run_start", 2.0), ("run_stop", 12.0), (later, 15.0)) == {"cost/usd": 10.0}


def test_lost_training_is_paid_for_too() -> None:
    resumed = ("run_start", 2.0), ("epoch_stop", 7.0), ("resume", 20.0), ("run_start", 22.0), ("run_stop", 32.0)
    assert cost(*resumed, nodes=2) == {"cost/usd": 30.0}


def test_without_an_end_nothing_is_known() -> None:
    assert cost(("run_start", 2.0), ("epoch_stop", 7.0)) == {}
