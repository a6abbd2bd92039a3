"""Evaluations at intervals: a program's log gives the same columns as a run of ours."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.tracking.measure.programs.test_training_events import BEGAN, mllog
from tracking.measure.programs import DeclaredPatterns, TrainingEvents, WallClock, parse_record
from tracking.measure.training import clock
from tracking.record import Record

EPOCH = 800


def log(benchmark: str, *places: dict[str, Any]) -> tuple[TrainingEvents, list[Record]]:
    """A program that prints MLPerf's log, with an evaluation at each of these places; the last one reaches 0.9."""
    account = TrainingEvents(WallClock(*BEGAN), {"accuracy": 0.9}, BEGAN)
    said: list[Any] = [(0, "submission_benchmark", benchmark, {}), (0, "train_samples", EPOCH, {})]
    said += [(1, "run_start", None, {}), (2, "epoch_start", None, {"epoch_num": 1})]
    for number, place in enumerate(places, 1):
        said.append((10 * number, "eval_accuracy", 0.95 if number == len(places) else 0.1, place))
    records = mllog(account, *said, (99, "run_stop", None, {"status": "success"}))
    return account, [record for record in records if record.kind == "event"]


def samples(*counts: int) -> list[dict[str, Any]]:
    return [{"samples_count": count} for count in counts]


def epochs(*numbers: float) -> list[dict[str, Any]]:
    return [{"epoch_num": number} for number in numbers]


def interval(account: TrainingEvents) -> dict[str, int]:
    return {key: value for key, value in account.params.items() if key.startswith("eval_")}


@pytest.mark.parametrize("places", [samples(200, 400, 600), epochs(0.25, 0.5, 0.75)])
def test_an_evaluation_within_an_epoch_has_its_place(places: list[dict[str, Any]]) -> None:
    account, events = log("mine", *places)
    evaluated = [event.values for event in events if event.key == "eval_accuracy"]
    assert [values["epoch_num"] for values in evaluated] == [0.25, 0.5, 0.75]
    assert [values.get("samples_count") for values in evaluated] == [place.get("samples_count") for place in places]
    figures = clock.summarize(events, {"accuracy": 0.9})
    assert figures["epochs/to_accuracy"] == 0.75
    assert figures["evaluations/to_accuracy"] == 3
    assert figures["time/evaluation_interval_sec"] == pytest.approx(10)
    assert interval(account) == {"eval_interval_samples": 200}


@pytest.mark.parametrize(
    ("places", "params"),
    [
        (samples(200), {"eval_interval_samples": 200}),
        (samples(200, 400, 790), {"eval_interval_samples": 200}),
        (samples(210, 410), {"eval_interval_samples": 210}),
        (samples(0, 200, 400), {"eval_interval_samples": 200}),
        (samples(1000, 1200), {"eval_interval_samples": 200, "eval_after_samples": 1000}),
        (samples(800, 1600), {}),
        (samples(796, 1592), {}),
        ([{}, {}], {}),
    ],
)
def test_the_interval_is_part_of_the_setting(places: list[dict[str, Any]], params: dict[str, int]) -> None:
    assert interval(log("mine", *places)[0]) == params


def test_a_benchmark_without_epochs_has_an_interval_all_the_same() -> None:
    account, events = log("bert", *samples(100_000, 200_000))
    assert interval(account)["eval_interval_samples"] == 100_000
    evaluated = [event.values for event in events if event.key == "eval_accuracy"]
    assert [values["samples_count"] for values in evaluated] == [100_000, 200_000]


def spoken(*lines: str) -> TrainingEvents:
    patterns = {"eval/accuracy": r"acc ([\d.]+)"}
    words = DeclaredPatterns(patterns, r"seen (\d+)", r"epoch ([\d.]+)", None, None, None)
    account = TrainingEvents(WallClock(*BEGAN), None, BEGAN)
    for second, line in enumerate(lines, 1):
        account.read_matches(words.matches(line), *(BEGAN[0] + 1000 * second, BEGAN[1] + second))
    return account


def test_a_programs_own_words_say_the_interval_where_they_count_samples() -> None:
    assert interval(spoken("seen 200", "acc 0.1", "seen 400", "acc 0.2")) == {"eval_interval_samples": 200}
    assert interval(spoken("seen 200 epoch 0.5", "acc 0.1", "seen 400", "acc 0.2")) == {"eval_interval_samples": 200}
    said = [f"seen {200 * half} epoch {half / 2}\nacc 0.1" for half in (1, 2, 3)]
    assert interval(spoken(*"\n".join(said).split("\n"))) == {"eval_interval_samples": 200}
    assert interval(spoken("epoch 0.5", "acc 0.1", "epoch 1", "acc 0.2")) == {}, "of how many samples nobody said"
    assert interval(spoken("seen 390 epoch 1", "acc 0.1", "seen 780 epoch 2", "acc 0.2")) == {}, "each epoch"


def test_a_journals_line_may_say_its_samples() -> None:
    account = TrainingEvents(WallClock(*BEGAN), None, BEGAN)
    for count in (200, 400):
        content = {"kind": "event", "key": "eval_accuracy",
                   "values": {"metrics": {"accuracy": 0.1}, "samples_count": count}}  # fmt: skip
        records = account.read_record(parse_record(json.dumps(content), *BEGAN))
    assert [record.values["samples_count"] for record in records if record.key == "eval_accuracy"] == [400]
    assert interval(account) == {"eval_interval_samples": 200}
    line = json.dumps(content).replace("400", "1.5")
    with pytest.raises(ValueError, match=r"samples_count=1\.5: must be a whole number"):
        parse_record(line, *BEGAN)
