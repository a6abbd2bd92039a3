"""MLPerf's log of a run that is evaluated within its epochs."""

from __future__ import annotations

from conf.target import parse
from tracking.analysis.mlperf.log import until_target
from tracking.record.journal import Record


def event(key: str, clock_sec: float, **values: object) -> Record:
    return Record("event", round(1000 * clock_sec), clock_sec, key=key, values=values)


def test_a_run_that_trains_on_is_over_with_the_evaluation_within_an_epoch() -> None:
    events = [
        event("run_start", 0), event("epoch_start", 0, epoch_num=1), event("eval_start", 2, epoch_num=0.5),
        event("eval_accuracy", 3, epoch_num=0.5, metrics={"accuracy": 0.95}), event("eval_stop", 4, epoch_num=0.5),
        event("throughput_window", 6), event("eval_start", 7, epoch_num=0.8), event("eval_stop", 8, epoch_num=0.8),
        event("epoch_stop", 9, epoch_num=1), event("run_stop", 10, status="success"),
    ]  # fmt: skip
    log = until_target(events, {"accuracy": parse(0.9)})
    assert [entry.key for entry in log] == [
        "run_start", "epoch_start", "eval_start", "eval_accuracy", "eval_stop", "epoch_stop", "run_stop",
    ]  # fmt: skip
    assert [entry.clock_sec for entry in log[-2:]] == [4, 4]
    assert until_target(events, {"accuracy": parse(0.99)}) == events
