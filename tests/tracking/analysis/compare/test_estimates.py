"""Speed-ups over the setting of the fewest devices."""

from __future__ import annotations

import pytest

from tracking.analysis.compare.estimates import speed_up
from tracking.analysis.compare.grouping import Setting
from tracking.analysis.results import Run


def setting(gpus: str, value: float) -> Setting:
    metrics = {
        "world_size": float(gpus),
        "eval/fid": value,
        "time/train_sec": value,
        "throughput/samples_per_sec": value,
    }
    runs = [Run(gpus, gpus, "e", "FINISHED", 0, 1, {"gpus": gpus, "nodes": "1"}, {}, metrics)]
    return Setting.of({"gpus": gpus}, runs, runs)


@pytest.mark.parametrize(
    ("key", "factor"), [("time/train_sec", 2.0), ("throughput/samples_per_sec", 0.5), ("eval/fid", None)]
)
def test_a_speed_up_needs_a_direction(key: str, factor: float | None) -> None:
    both = speed_up(setting("2", 1.0), setting("1", 2.0), key)
    assert (both[0].mean if both else None) == factor


@pytest.mark.parametrize("values", [(-1.0, -2.0), (-1.0, 2.0), (1.0, 0.0)])
def test_a_speed_up_needs_means_above_0(values: tuple[float, float]) -> None:
    own, base = (setting(gpus, value) for gpus, value in zip(("2", "1"), values, strict=True))
    assert speed_up(own, base, "throughput/samples_per_sec") is None
    assert (speed_up(base, base, "throughput/samples_per_sec") is None) is (values[1] <= 0)
