"""Where the time from a run's submission to its end went: each second once, whatever became of the run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tracking.base import time_parts
from tracking.measure.bottleneck import account, goodput
from tracking.record import Journal, Record, RunInfo, documents, journal, run_folder


def event(at: float, key: str, **values: Any) -> Record:
    return Record("event", int(1e3 * (1000 + at)), at, key, values=values)


def waited(at: float, *ms: float) -> Record:
    return event(at, "throughput_window", samples=8, rank_wait_ms=list(ms), rank_ms=[1000.0] * len(ms))


# Submitted at 0; 10 s queue, 5 s start (2 s of launching among them), 8 s compiling, 40 s on the clock, 4 s after it.
RUN = [
    event(12, "init_start", since_command_sec=2.0), event(15, "warmup_start"), event(23, "warmup_stop"),
    event(23, "run_start"), event(23, "epoch_start", epoch_num=1), waited(30, 3000.0, 1000.0),
    event(33, "checkpoint_start"), event(34, "checkpoint_stop"), event(43, "epoch_stop", epoch_num=1),
    event(43, "eval_start"), event(53, "eval_stop"), event(56, "epoch_start", epoch_num=2),
    event(63, "epoch_stop", epoch_num=2), event(63, "run_stop"), event(67, "test_stop"),
]  # fmt: skip
SPENT = {
    "queue": 10, "start": 5, "compile": 8, "data": 3, "train": 23, "evaluation": 10, "checkpoint": 1, "lost": 0,
    "end": 4, "idle": 3,
}  # fmt: skip


def test_each_second_is_counted_once() -> None:
    parts = goodput.seconds(RUN, created_ms=1_000_000, ended_ms=1_067_000, finished=True)
    assert parts == pytest.approx(SPENT)
    assert sum(goodput.shares(parts).values()) == pytest.approx(1.0)
    assert parts.keys() == time_parts.GOODPUT_PARTS.keys() - {"selfplay", "gate"}
    assert goodput.words(parts).startswith("34 % of 67.0 s was training; ")
    assert "queue 15 %, evaluation 15 %, compiling and warming up 12 %" in goodput.words(parts)


def phases(at: float, selfplay: float, gate: float) -> Record:
    return Record("metrics", int(1e3 * (1000 + at)), at, values={"selfplay/sec": selfplay, "gate/sec": gate})


def test_self_play_is_no_wait_for_data_and_an_epoch_that_is_played_again_counts_once() -> None:
    records = [*RUN[:8], phases(40, 2.5, 4.0), *RUN[8:]]
    parts = goodput.seconds(records, 1_000_000, 1_067_000, finished=True)
    assert parts == pytest.approx(SPENT | {"selfplay": 2.5, "gate": 4.0, "data": 0.5, "train": 19})
    assert "self-play 4 %" in goodput.words(parts)
    assert goodput.sum_over_runs([parts, SPENT])["selfplay"] == pytest.approx(2.5)
    played_again = [
        replace(record, clock_sec=record.clock_sec + 100, time_ms=record.time_ms + 100_000) for record in records[3:]
    ]
    again = [*records[:9], event(120, "resume", epoch_num=0), *played_again]
    parts = goodput.seconds(again, 1_000_000, 1_167_000, finished=True)
    assert (parts["selfplay"], parts["gate"]) == pytest.approx((2.5, 4.0))


def test_a_program_whose_epochs_have_no_starts_trains_from_its_start_to_its_end() -> None:
    said = [event(12, "init_start", since_command_sec=2.0), event(23, "run_start"), event(40, "eval_accuracy"),
            event(63, "run_stop"), event(67, "profile_stop")]  # fmt: skip
    parts = goodput.seconds(said, 1_000_000, 1_067_000, finished=True)
    assert (parts["train"], parts["idle"], parts["evaluation"]) == pytest.approx((40, 0, 0))
    assert goodput.words(parts).startswith("60 % of 67.0 s was training; ")


def test_an_interruption_loses_what_is_done_again_and_the_time_between() -> None:
    first = [record for record in RUN if record.clock_sec < 55]
    again = [
        event(100, "resume", epoch_num=1), event(105, "init_start"), event(110, "run_start"),
        event(110, "epoch_start", epoch_num=2), event(130, "epoch_stop", epoch_num=2), event(130, "run_stop"),
    ]  # fmt: skip
    lost = [event(53, "epoch_start", epoch_num=2), event(60, "checkpoint_saved")]
    parts = goodput.seconds([*first, *lost, *again], 1_000_000, 1_130_000, finished=True)
    assert parts["lost"] == pytest.approx(110 - 53)  # 7 s of the second epoch, and 50 s until it trains again
    assert parts["train"] == pytest.approx(20 - 1 - 3 + 20)
    assert sum(parts.values()) == pytest.approx(130)


def test_an_attempt_that_never_trained_is_lost_from_its_end_on() -> None:
    again = [
        event(680, "resume", epoch_num=0), event(685, "init_start"), event(690, "run_start"),
        event(690, "epoch_start", epoch_num=1), event(790, "epoch_stop", epoch_num=1), event(790, "run_stop"),
    ]  # fmt: skip
    parts = goodput.seconds([*RUN[:2], *again], 1_000_000, 1_790_000, finished=True)
    assert parts == pytest.approx(
        {"queue": 10, "start": 5, "compile": 0, "data": 0, "train": 100, "evaluation": 0, "checkpoint": 0,
         "lost": 690 - 15, "end": 0, "idle": 0}
    )  # fmt: skip


@pytest.mark.parametrize("key", ["run_start", "run_stop"])
def test_a_training_without_a_start_or_an_end_counts_nothing(key: str) -> None:
    events = [record for record in RUN if record.key != key]
    parts = goodput.seconds(events, 1_000_000, 1_067_000, finished=True)
    assert parts == pytest.approx({"queue": 10, "lost": 57})


def test_what_is_not_understood_ends_no_run(tmp_path: Path) -> None:
    documents.write_json(tmp_path / run_folder.RUN, RunInfo("run", "experiment", "uri", created_ms=1_000_000))
    log = Journal(tmp_path / run_folder.JOURNAL)
    for record in [*RUN[:5], event(25, "throughput_window", rank_wait_ms=[None, 1.0]), *RUN[5:]]:
        log.append(record)
    log.close()
    assert account(tmp_path, finished=True) == {}


def test_nothing_that_a_failed_run_did_counts() -> None:
    parts = goodput.seconds(RUN[:7], 1_000_000, 1_033_000, finished=False)
    assert parts == pytest.approx({"queue": 10, "lost": 23})
    assert goodput.seconds([], 0, 1, finished=False) == {}


def test_a_run_that_never_started_was_in_the_queue_until_it_failed(tmp_path: Path) -> None:
    documents.write_json(tmp_path / run_folder.RUN, RunInfo("run", "experiment", "uri", created_ms=1_000_000))
    spent = account(tmp_path, finished=False, failed_ms=37_000_000)
    assert spent["seconds"] == {"queue": 36_000.0}
    assert account(tmp_path, finished=False) == {}


def test_a_run_that_is_ended_again_has_its_shares_once(tmp_path: Path) -> None:
    documents.write_json(tmp_path / run_folder.RUN, RunInfo("run", "experiment", "uri", created_ms=1_000_000))
    log = Journal(tmp_path / run_folder.JOURNAL)
    for record in RUN:
        log.append(record)
    log.close()
    assert account(tmp_path, finished=True) == account(tmp_path, finished=True) != {}
    records = [record for record, _ in journal.read(tmp_path / run_folder.JOURNAL)]
    assert [record.kind for record in records].count("metrics") == 1
    assert (records[-1].time_ms, records[-1].clock_sec) == (RUN[-1].time_ms, RUN[-1].clock_sec)


def test_a_sweep_adds_up_the_seconds_of_its_jobs_and_failed_ones_too() -> None:
    together = goodput.sum_over_runs([SPENT, {"queue": 10.0, "lost": 23.0}])
    assert together["lost"] == 23
    assert sum(goodput.shares(together).values()) == pytest.approx(1.0)
    assert goodput.sum_over_runs([]) == {}
    assert goodput.words({}) == ""


def test_the_result_and_mlflow_have_it(tmp_path: Path) -> None:
    documents.write_json(tmp_path / run_folder.RUN, RunInfo("run", "experiment", "uri", created_ms=1_000_000))
    log = Journal(tmp_path / run_folder.JOURNAL)
    for record in [*RUN[:8], phases(40, 2.5, 4.0), *RUN[8:]]:
        log.append(record)
    log.close()
    told = account(tmp_path, finished=True)
    assert told["seconds"] == pytest.approx(SPENT | {"selfplay": 2.5, "gate": 4.0, "data": 0.5, "train": 19})
    assert sum(told["shares"].values()) == pytest.approx(1.0, abs=1e-3)
    last = [record for record, _ in journal.read(tmp_path / run_folder.JOURNAL)][-1]
    assert last.values["goodput/train_fraction"] == told["shares"]["train"]
    assert json.dumps(told)


# What an attempt does, and whether it is training; `epoch` is repeated for each epoch.
BEGIN = ("init_start", "warmup_start", "warmup_stop", "run_start")
EPOCH = (
    "epoch_start", "throughput_window", "checkpoint_start", "checkpoint_stop", "epoch_stop", "eval_start", "eval_stop",
)  # fmt: skip
seconds_each = st.lists(st.integers(0, 50), min_size=60, max_size=60)


@st.composite
def journals(draw: st.DrawFn) -> tuple[list[Record], int, bool]:
    """The events of a run, when it was submitted, and whether it finished: killed anywhere, and resumed up to twice.

    An attempt continues after the last epoch with a checkpoint. The machine may have been started anew before it.
    """
    number_of_epochs, kills = draw(st.integers(1, 3)), draw(st.lists(st.integers(1, 26), max_size=3))
    waits = iter(draw(seconds_each) + draw(seconds_each) + draw(seconds_each))
    events: list[Record] = []
    wall, saved = 1000.0 + next(waits), 0
    for attempt in range(len(kills) + 1):
        boot = wall - 5.0 if draw(st.booleans()) else 0.0

        def add(key: str, boot: float = boot, **values: Any) -> None:
            nonlocal wall
            wall += next(waits)
            events.append(Record("event", int(1e3 * wall), wall - boot, key, values=values))

        place, number = len(events), kills[attempt] if attempt < len(kills) else 1000
        if attempt:
            add("resume", epoch_num=saved)
        for key in BEGIN:
            add(key, **({"since_command_sec": 0.0} if key == "init_start" else {}))
        for epoch in range(saved + 1, number_of_epochs + 1):
            for key in EPOCH:
                window = {"rank_wait_ms": [float(1000 * draw(st.integers(0, 60)))]} if "window" in key else {}
                add(key, **(window or {"epoch_num": epoch}))
        add("run_stop")
        del events[place + max(number, 2 * bool(attempt)) :]
        saved = max((event.values["epoch_num"] for event in events if event.key == "checkpoint_stop"), default=0)
        saved = min(saved, number_of_epochs - 1)
        wall = events[-1].time_ms / 1e3
    return events, 1_000_000, events[-1].key == "run_stop"


@given(journals(), st.integers(0, 20))
@example(([event(0, "init_start", since_command_sec=0.0), event(-5, "run_start")], 990_000, False), 0)
def test_whatever_ends_a_run_no_part_is_negative_or_longer_than_the_run(
    made: tuple[list[Record], int, bool], after_sec: int
) -> None:
    events, created_ms, finished = made
    ended_ms = events[-1].time_ms + 1000 * after_sec
    for claimed in {False, finished}:
        parts = goodput.seconds(events, created_ms, ended_ms, claimed)
        total_sec = (ended_ms - created_ms) / 1e3
        assert sum(parts.values()) == pytest.approx(total_sec)
        assert all(0.0 <= sec <= total_sec + 1e-6 for sec in parts.values()), parts
        assert parts.keys() <= time_parts.GOODPUT_PARTS.keys()
