"""From lines to events to figures: the same arithmetic as of our own runs, checked by hand."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tracking.measure.programs import DeclaredPatterns, TrainingEvents, WallClock, parse_entry, parse_record
from tracking.measure.training import clock, throughput
from tracking.record import Record

HUGE = "9" * 401
BEGAN = (1_000_000, 100.0)


def mllog(account: TrainingEvents, *said: tuple[float, str, Any, dict[str, Any]]) -> list[Record]:
    """The records of lines at these seconds after the program's start."""
    records: list[Record] = []
    for second, key, value, metadata in said:
        content = {"time_ms": 1_000_000 + 1000 * second, "key": key, "value": value, "metadata": metadata}
        entry = parse_entry(f":::MLLOG {json.dumps(content)}")
        assert entry is not None
        records += account.read_entry(entry)
    return records


def epoch(number: int, start: float, accuracy: float) -> list[tuple[float, str, Any, dict[str, Any]]]:
    at = {"epoch_num": number}
    return [
        (start, "epoch_start", None, at), (start + 4, "epoch_stop", None, at), (start + 4, "eval_start", None, at),
        (start + 5, "eval_accuracy", accuracy, at), (start + 5, "eval_stop", None, at),
    ]  # fmt: skip


def test_mlperfs_log_gives_the_figures_of_our_own_runs() -> None:
    account = TrainingEvents(WallClock(*BEGAN), {"accuracy": 0.7}, BEGAN)
    said = [(1, "train_samples", 800, {}), (1, "global_batch_size", 32, {}), (1, "number_of_ranks", 2, {})]
    said += [(2, "run_start", None, {})]
    said += [part for number in range(4) for part in epoch(number, 2 + 5 * number, 0.4 + 0.1 * number)]
    said += [(23, "run_stop", None, {"status": "success"})]
    events = [record for record in mllog(account, *said) if record.kind == "event"]
    figures = clock.summarize(events, {"accuracy": 0.7})
    assert figures["time/to_accuracy_sec"] == pytest.approx(20)
    assert figures["time/to_accuracy_train_sec"] == pytest.approx(16)
    assert figures["epochs/to_accuracy"] == 4  # it counts from 0, and we from 1
    assert (figures["evaluations/to_accuracy"], figures["time/evaluation_interval_sec"]) == (4, pytest.approx(5))
    assert figures["epochs/trained"] == 4
    assert figures["time/eval_sec"] == pytest.approx(4)
    rates = throughput.summarize(throughput.program_windows(events), account.world_size)
    assert rates == {
        "throughput/samples_per_sec": pytest.approx(200), "throughput/samples_per_sec_per_device": pytest.approx(100),
    }  # fmt: skip
    assert account.params == {"train_samples": 800, "global_batch_size": 32}
    assert account.program_gave_start
    assert account.status == "success"


@pytest.mark.parametrize(
    ("train_samples", "samples"), [(1_281_167, 1_281_167), (5_005, 1_281_280), (800, 800)]
)  # an epoch's, in batches of 256, of a part of the dataset
def test_a_program_of_mlperfs_may_count_batches_or_train_on_less(train_samples: int, samples: int) -> None:
    account = TrainingEvents(WallClock(*BEGAN), {"accuracy": 0.7}, BEGAN)
    said = [(1, "submission_benchmark", "resnet", {}), (1, "global_batch_size", 256, {})]
    said += [(1, "train_samples", train_samples, {}), (2, "run_start", None, {}), *epoch(1, 2, 0.4)]
    (window,) = [record.values for record in mllog(account, *said) if record.key == "throughput_window"]
    assert window["samples"] == samples
    assert not account.submission.not_understood


@pytest.mark.parametrize("value", ["n/a", None, [0.7]])
def test_the_first_accuracy_that_is_no_number_is_told_with_its_epoch(value: Any) -> None:
    account = TrainingEvents(WallClock(*BEGAN), {"accuracy": 0.7}, BEGAN)
    assert not mllog(account, (2, "eval_accuracy", value, {"epoch_num": 1}))
    mllog(account, (3, "eval_accuracy", "later", {"epoch_num": 2}), (4, "eval_accuracy", 0.7, {"epoch_num": 3}))
    assert account.submission.non_number.startswith("accuracy of epoch ")
    assert account.submission.non_number.endswith(repr(str(value)))
    assert not account.missing_metrics


def test_an_accuracy_without_an_epoch_that_is_no_number_is_told_without_one() -> None:
    account = TrainingEvents(WallClock(*BEGAN), {"accuracy": 0.7}, BEGAN)
    assert not mllog(account, (2, "eval_accuracy", "n/a", {}))
    assert account.submission.non_number == "accuracy: 'n/a'"


def test_lines_of_several_ranks_count_once() -> None:
    once, twice = (TrainingEvents(WallClock(*BEGAN), {"accuracy": 0.5}, BEGAN) for _ in range(2))
    said = [(2, "run_start", None, {}), *epoch(1, 2, 0.4), *epoch(2, 7, 0.5), (12, "run_stop", None, {})]

    def keys(records: list[Record]) -> list[str]:
        return [record.key for record in records if record.key != "eval_accuracy"]

    assert keys(mllog(twice, *[line for line in said for _ in range(2)])) != []
    events = [record for record in mllog(once, *said) if record.kind == "event"]
    again = TrainingEvents(WallClock(*BEGAN), {"accuracy": 0.5}, BEGAN)
    doubled = [r for r in mllog(again, *[line for line in said for _ in range(2)]) if r.kind == "event"]
    targets = {"accuracy": 0.5}
    assert clock.summarize(doubled, targets) == clock.summarize(events, targets)


def test_a_blocks_epochs_are_equally_long() -> None:
    account = TrainingEvents(WallClock(*BEGAN), {}, BEGAN)
    at = {"first_epoch_num": 1, "epoch_count": 4}
    said = [(0, "train_samples", 100, {}), (1, "run_start", None, {}), (1, "block_start", None, at)]
    events = mllog(account, *said, (9, "block_stop", None, at))
    figures = clock.summarize(events, {})
    assert (figures["epochs/trained"], figures["time/epoch_sec"]) == (4, pytest.approx(2))
    rates = throughput.summarize(throughput.program_windows(events), None)
    assert rates == {"throughput/samples_per_sec": pytest.approx(50)}


def test_an_evaluation_that_began_before_the_epoch_takes_place_beside_it_and_is_no_pause() -> None:
    """As in NVIDIA's logs of RetinaNet, whose epochs go on meanwhile."""
    account = TrainingEvents(WallClock(*BEGAN), {"accuracy": 0.9}, BEGAN)
    records = mllog(
        account, (1, "train_samples", 100, {}), (1, "run_start", None, {}), (2, "eval_start", None, {}),
        (4, "epoch_start", None, {"epoch_num": 2}), (6, "eval_stop", None, {}),
        (14, "epoch_stop", None, {"epoch_num": 2}),
    )  # fmt: skip
    (window,) = [record.values for record in records if record.key == "throughput_window"]
    assert window["rank_ms"] == [10_000]


def test_boxes_and_masks_are_metrics_and_an_aborted_run_is_said_to_be() -> None:
    account = TrainingEvents(WallClock(*BEGAN), {"BBOX": 0.3, "SEGM": 0.2}, BEGAN)
    scores = {"BBOX": 0.31, "SEGM": 0.19, "note": "x"}
    records = mllog(account, (1, "run_start", None, {}), (2, "eval_accuracy", scores, {"epoch_num": 1}),
                    (3, "run_stop", None, {"status": "aborted"}))  # fmt: skip
    (evaluated,) = [record for record in records if record.key == "eval_accuracy"]
    assert evaluated.values["metrics"] == {"BBOX": 0.31, "SEGM": 0.19}
    figures = clock.summarize([record for record in records if record.kind == "event"], {"BBOX": 0.3, "SEGM": 0.2})
    assert (figures["target_reached"], figures["evaluations/censored"]) == (0, 1)
    assert figures["time/censored_sec"] == pytest.approx(2)
    assert account.status == "aborted"


def spoken(words: DeclaredPatterns, account: TrainingEvents, lines: list[tuple[float, str]]) -> list[Record]:
    records = []
    for second, line in lines:
        records += account.read_matches(words.matches(line), int(1_000_000 + 1000 * second), 100.0 + second)
    return records


def test_declared_words_give_curves_evaluations_and_windows() -> None:
    words = DeclaredPatterns({"eval/acc": r"acc (\S+)", "train/loss": r"loss (\S+)"}, samples=r"seen ([\d,]+)",
                          epoch=r"epoch (\d+)")  # fmt: skip
    account = TrainingEvents(WallClock(*BEGAN), {"acc": 0.9}, BEGAN)
    lines = [(1, "epoch 1 loss 2.5 seen 1,000"), (2, "seen 2,000"), (3, "seen 4,000"), (4, "seen 6,000"),
             (6, "epoch 1: acc 90.5%"), (7, "epoch 2 loss nan seen 7,000")]  # fmt: skip
    records = spoken(words, account, lines) + account.end(1_008_000, 108.0)
    windows = throughput.program_windows(records)
    assert [window.samples for window in windows] == [1000, 1000, 2000, 2000]  # none across the evaluation
    assert throughput.summarize(windows, 1)["throughput/samples_per_sec"] == pytest.approx(2000)
    figures = clock.summarize([record for record in records if record.kind == "event"], {"acc": 0.9})
    assert figures["time/to_accuracy_sec"] == 6
    assert figures["epochs/to_accuracy"] == 1
    losses = [record.values["train/loss"] for record in records if "train/loss" in record.values]
    assert losses[0] == 2.5
    assert math.isnan(losses[1])
    assert not account.program_gave_start


def test_samples_that_are_counted_anew_each_epoch_and_epochs_in_part_go_on() -> None:
    words = DeclaredPatterns({"eval/acc": r"acc (\S+)", "train/loss": r"loss (\S+)"}, samples=r"\[(\d+)/",
                          epoch=r"epoch (\S+)")  # fmt: skip
    account = TrainingEvents(WallClock(*BEGAN), {"acc": 0.9}, BEGAN)
    lines = [(1, "epoch 1 [0/3000] loss 3"), (2, "[2000/3000] loss 2"), (3, "epoch 1 acc 0.5"), (4, "epoch 2 [0/3000]"),
             (5, "[2000/3000] loss 1"), (6, "epoch 1.7 acc 0.9")]  # fmt: skip
    records = spoken(words, account, lines)
    windows = [record.values for record in records if record.key == "throughput_window"]
    assert [(window["samples"], window["step"], window["epoch_num"]) for window in windows] == [
        (2000, 2000, 1),
        (2000, 4000, 2),
    ]
    assert [record.step for record in records if "train/loss" in record.values] == [0, 2000, 4000]
    figures = clock.summarize([record for record in records if record.kind == "event"], {"acc": 0.9})
    assert figures["epochs/to_accuracy"] == 1.7


def test_steps_that_are_counted_anew_each_epoch_go_on() -> None:
    words = DeclaredPatterns({"train/loss": r"loss (\S+)", "eval/accuracy": r"accuracy (\S+)"}, step=r"step (\d+)")
    account = TrainingEvents(WallClock(*BEGAN), {"accuracy": 0.7}, BEGAN)
    said = ["step 50 loss 3", "step 100 loss 2", "accuracy 0.5", "step 50 loss 1", "step 100 loss 1", "accuracy 0.6"]
    said += ["step 50 loss 1", "step 100 loss 1", "step 99 loss 1"]  # another rank is a step behind
    records: list[Record] = []
    for second, line in enumerate(said):
        records += account.read_matches(words.matches(line), 1_000_000 + 1000 * second, 100.0 + second)
    assert [record.step for record in records if "train/loss" in record.values] == [50, 100, 150, 200, 250, 300, 299]
    assert [record.step for record in records if "eval/accuracy" in record.values] == [100, 200]


def test_steps_of_a_journals_file_that_are_counted_anew_go_on() -> None:
    account, records = TrainingEvents(WallClock(*BEGAN), {"accuracy": 0.7}, BEGAN), list[Record]()
    for step in (1, 2, 3, 1, 2, 3):
        line = f'{{"kind": "metrics", "step": {step}, "values": {{"a": 1}}}}'
        records += account.read_record(parse_record(line, 1, 1.0))
    values = '"values": {"step": 3, "metrics": {"accuracy": 0.5}}'
    records += account.read_record(parse_record(f'{{"kind": "event", "key": "eval_accuracy", {values}}}', 1, 1.0))
    records += account.read_record(parse_record('{"kind": "metrics", "values": {"a": 1}}', 1, 1.0))
    assert [record.step for record in records if "a" in record.values] == [1, 2, 3, 4, 5, 6, 0]
    assert [record.step for record in records if "eval/accuracy" in record.values] == [6]


def test_without_epochs_none_are_reported_and_a_declared_start_begins_the_clock() -> None:
    words = DeclaredPatterns({"eval/acc": r"acc (\S+)"}, start="^training")
    account = TrainingEvents(WallClock(*BEGAN), {"acc": 0.9})
    records = spoken(words, account, [(3, "training now"), (5, "acc 0.95")]) + account.end(1_008_000, 108.0)
    figures = clock.summarize([record for record in records if record.kind == "event"], {"acc": 0.9})
    assert figures["time/to_accuracy_sec"] == 2
    assert "epochs/to_accuracy" not in figures


def test_a_metric_a_million_times_is_thinned_and_no_best_value_is_lost() -> None:
    words = DeclaredPatterns({"train/loss": r"loss (\S+)", "eval/acc": r"acc (\S+)"})
    account = TrainingEvents(WallClock(*BEGAN), {"acc": 0.9}, BEGAN)
    kept = spoken(words, account, [(1, "loss 1.0")] * 50_000)
    assert 1_000 < len(kept) < 7_000
    assert account.num_skipped == 50_000 - len(kept) + 1  # with run_start
    spoken(words, account, [(1, "acc 0.1")] * 5_001)
    assert [record.key for record in spoken(words, account, [(2, "acc 0.95")])] == ["eval_accuracy", ""]


def test_evaluations_that_are_thinned_are_counted() -> None:
    account = TrainingEvents(WallClock(*BEGAN), {"acc": 0.9}, BEGAN)
    lines = [(1 + at / 1000, f"acc {0.95 if at == 4_000 else 0.1}") for at in range(4_001)]
    kept = spoken(DeclaredPatterns({"eval/acc": r"acc (\S+)"}), account, lines)
    assert account.num_skipped
    figures = clock.summarize([record for record in kept if record.kind == "event"], {"acc": 0.9})
    assert figures["evaluations/to_accuracy"] == 4_001
    assert figures["time/evaluation_interval_sec"] == pytest.approx(0.001)


def test_a_metric_that_gets_better_a_million_times_is_thinned_too() -> None:
    words = DeclaredPatterns({"eval/acc": r"acc (\S+)", "eval/rate": r"rate (\S+)"})
    account = TrainingEvents(WallClock(*BEGAN), {"acc": 0.43}, BEGAN, directions={"rate": "higher"})
    lines = [(1.0, f"{word} {value / 25_000}") for value in range(25_000) for word in ("acc", "rate")]
    records = spoken(words, account, lines) + account.end(1_002_000, 102.0)
    evaluated = [record.values["metrics"] for record in records if record.key == "eval_accuracy"]
    assert len(evaluated) < 20_000
    assert account.num_skipped == 50_000 - len(evaluated)
    values = [row["acc"] for row in evaluated if "acc" in row]
    assert values == sorted(values)
    assert min(value for value in values if value >= 0.43) == 0.43  # the first that reaches the target
    assert values[-1] == 24_999 / 25_000  # the best of all
    assert [row["rate"] for row in evaluated if "rate" in row][-1] == values[-1]  # neither metric hides the other


def test_what_one_line_says_of_an_evaluation_is_one() -> None:
    targets = {"box_map": 0.3, "mask_map": 0.2}
    account = TrainingEvents(WallClock(*BEGAN), targets, BEGAN)
    assert account.missing_metrics == {"box_map", "mask_map"}
    words = DeclaredPatterns({f"eval/{name}": rf"{name}=(\S+)" for name in targets})
    records = spoken(words, account, [(1, "box_map=0.31"), (2, "box_map=0.32 mask_map=0.21")])
    assert not account.missing_metrics
    figures = clock.summarize([record for record in records if record.kind == "event"], targets)
    assert figures["time/to_accuracy_sec"] == 2


def test_an_evaluation_before_the_start_is_no_time() -> None:
    account = TrainingEvents(WallClock(*BEGAN), {"accuracy": 0.9}, BEGAN)
    records = mllog(account, (9, "run_start", None, {}), (4, "eval_accuracy", 0.95, {}))
    with pytest.raises(ValueError, match=r"5\.000 s before run_start: the clock went back"):
        clock.summarize([record for record in records if record.kind == "event"], {"accuracy": 0.9})


def test_lines_of_a_journal_are_checked() -> None:
    line = '{"kind": "event", "key": "eval_accuracy", "values": {"metrics": {"acc": 1}, "epoch_num": 2, "x": 1}}'
    record = parse_record(line, 5, 6.0)
    assert (record.time_ms, record.clock_sec, record.values) == (5, 6.0, {"metrics": {"acc": 1.0}, "epoch_num": 2})
    assert parse_record('{"kind": "event", "key": "run_start", "time_ms": 1005}', 5, 6.0).clock_sec == 7.0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not JSON"), ("[]", "kind"), ('{"kind": "tags"}', "kind"),
        ('{"kind": "event", "key": "resume"}', "allowed: .*epoch_start"),
        ('{"kind": "event", "key": "eval_accuracy"}', "metrics"),
        ('{"kind": "metrics", "values": {"a b?": 1}}', "MLflow accepts"),
        ('{"kind": "metrics", "values": {"a": "1"}}', "must be a number"),
        ('{"kind": "metrics", "step": 1.5}', "whole number"),
        ('{"kind": "metrics", "values": 3}', "mapping"),
        ('{"kind": "event", "key": "run_start", "clock_sec": Infinity}', "clock_sec=inf: must be seconds"),
        (f'{{"kind": "event", "key": "run_start", "clock_sec": {HUGE}}}', "clock_sec=inf: must be seconds"),
        ('{"kind": "event", "key": "run_start", "clock_sec": NaN}', "clock_sec=nan: must be seconds"),
        ('{"kind": "event", "key": "run_start", "clock_sec": 8}', "is after the line was read"),
        ('{"kind": "event", "key": "run_start", "time_ms": -5}', "time_ms=-5: must be milliseconds"),
        ('{"kind": "event", "key": "run_start", "time_ms": 1e18}', r"time_ms=1e\+18: must be milliseconds"),
        (f'{{"kind": "event", "key": "run_start", "time_ms": {HUGE}}}', "time_ms=inf: must be milliseconds"),
        ('{"kind": "event", "key": "run_start", "time_ms": 86400001}', "is a day or more after"),
        ('{"kind": "event", "key": ["run_start"]}', "key=list: allowed"),
        ('{"kind": ["event"], "key": "run_start"}', "kind"),
        (f'{{"kind": "metrics", "values": {{"a": {HUGE}}}}}', "a=inf: must be a number"),
        (f'{{"kind": "metrics", "step": {HUGE}}}', "whole number"),
        ('{"kind": "metrics", "values": {"target_reached": 1}}', "uses this name for its own measurements"),
        ('{"kind": "metrics", "values": {"time/to_accuracy_sec": 1}}', "uses this name for its own measurements"),
        (f'{{"kind": "event", "key": "epoch_start", "values": {{"epoch_num": {HUGE}}}}}', "epoch_num=inf"),
        ('{"kind": "event", "key": "throughput_window", "values": {"samples": 1, "rank_ms": [-1]}}', "must be above 0"),
        ('{"kind": "event", "key": "throughput_window", "values": {"samples": 1, "rank_ms": [0]}}', "must be above 0"),
        ('{"kind": "event", "key": "throughput_window", "values": {"samples": NaN, "rank_ms": [1]}}', "samples=nan"),
        ("[" * 100_000, "not JSON"),
    ],
)  # fmt: skip
def test_what_is_no_line_of_a_journal_says_why(line: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_record(line, 0, 0.0)


def test_events_of_a_journals_file_give_the_figures() -> None:
    account = TrainingEvents(WallClock(*BEGAN), {"acc": 0.9}, BEGAN)
    said = [
        {"kind": "event", "key": "run_start", "clock_sec": 101.0},
        {"kind": "event", "key": "eval_start", "clock_sec": 103.0},
        {"kind": "event", "key": "eval_stop", "clock_sec": 104.0},
        {"kind": "event", "key": "eval_accuracy", "clock_sec": 104.0, "values": {"metrics": {"acc": 0.9}}},
    ]
    records = [record for line in said for record in account.read_record(parse_record(json.dumps(line), 0, 200.0))]
    figures = clock.summarize([record for record in records if record.kind == "event"], {"acc": 0.9})
    assert (figures["time/to_accuracy_sec"], figures["time/to_accuracy_train_sec"]) == (3.0, 2.0)


def test_steps_of_a_known_size_give_rates_and_an_evaluations_step_ends_no_window() -> None:
    words = DeclaredPatterns({"eval/loss": r"val loss (\S+)"}, step=r"step (\d+)", samples_per_step=8)
    account = TrainingEvents(WallClock(*BEGAN), None, BEGAN, tokens_per_sample=64)
    lines = [(1, "step 10"), (2, "step 20"), (3, "step 30"), (9, "step 30 val loss 2.5"), (9.5, "step 31"),
             (10.5, "step 41"), (11.5, "step 51")]  # fmt: skip
    records = spoken(words, account, lines)
    windows = throughput.program_windows(records)
    assert [window.samples for window in windows] == [80, 80, 80, 80, 80]
    figures = throughput.summarize(windows, 1)
    assert figures["throughput/samples_per_sec"] == pytest.approx(80)
    assert figures["throughput/tokens_per_sec"] == pytest.approx(80 * 64)
    assert "throughput/source_tokens_per_sec" not in figures
    assert [record.step for record in records if "eval/loss" in record.values] == [30]


def told(
    benchmark: str, *values: Any, targets: dict[str, Any] | None = None, **metadata: Any
) -> tuple[TrainingEvents, Any]:
    """A program that prints MLPerf's log, with an evaluation every ten seconds, and the first that is journaled."""
    account = TrainingEvents(WallClock(*BEGAN), targets, BEGAN)
    first = [(0, "submission_benchmark", benchmark, {}), (1, "run_start", None, {})]
    said = [(10 * place, "eval_accuracy", value, metadata) for place, value in enumerate(values, 1)]
    records = mllog(account, *first, *said, (99, "run_stop", None, {"status": "success"}))  # type: ignore[arg-type]
    return account, clock.summarize([record for record in records if record.kind == "event"], account.targets)


def test_a_log_has_the_target_of_its_benchmark_where_none_was_asked_for() -> None:
    account, figures = told("resnet", 0.5, 0.76)
    assert account.targets == {"accuracy": 0.759}
    assert figures["time/to_accuracy_sec"] == 19
    assert not account.missing_metrics
    assert told("resnet", 0.5, 0.76, targets={"accuracy": 0.4})[1]["time/to_accuracy_sec"] == 9
    assert told("rnnt", 0.07, 0.05)[1]["time/to_accuracy_sec"] == 19
    assert told("stable_diffusion", {"FID": 80.0, "CLIP": 0.2})[1]["time/to_accuracy_sec"] == 9
    assert told("transformer", 20.0, 26.0)[0].targets == {"bleu": 25.0}, "in percent"
    assert told("ssd", 0.35, metric="mAP")[1]["target_reached"] == 1, "a benchmark's one metric, whatever it is called"


def test_a_log_of_no_benchmark_of_mlperfs_has_no_target() -> None:
    account, figures = told("mine", 0.5, 0.76)
    assert not account.targets
    assert "target_reached" not in figures
